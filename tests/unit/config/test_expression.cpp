/// @file
/// The expressions of `exclude`: precedence, types, columns of errors.

#include <gmock/gmock.h>

#include "base/error.hpp"
#include "config/expression.hpp"

namespace strata::test_expression {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::optional<TomlValue> lookup(std::string_view key) {
  if (key == "strategy.name") {
    return TomlValue{std::string("zero1"), 0};
  }
  if (key == "resources.nodes") {
    return TomlValue{std::int64_t{4}, 0};
  }
  if (key == "train.learning_rate") {
    return TomlValue{0.5, 0};
  }
  if (key == "data.shuffle") {
    return TomlValue{true, 0};
  }
  if (key == "model.widths") {
    return TomlValue{TomlValue::Array{{std::int64_t{2}, 0}, {std::int64_t{3}, 0}}, 0};
  }
  return std::nullopt;
}

bool holds(std::string_view text) { return Expression(text).evaluate(lookup); }

std::string error_of(std::string_view text) {
  try {
    holds(text);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Expression, Comparisons) {
  EXPECT_TRUE(holds("resources.nodes == 4"));
  EXPECT_TRUE(holds("resources.nodes == 4.0"));
  EXPECT_FALSE(holds("resources.nodes != 4"));
  EXPECT_TRUE(holds("resources.nodes<5"));
  EXPECT_FALSE(holds("resources.nodes < 4"));
  EXPECT_TRUE(holds("resources.nodes <= 4"));
  EXPECT_TRUE(holds("resources.nodes >= 4"));
  EXPECT_FALSE(holds("resources.nodes > 4"));
  EXPECT_TRUE(holds("train.learning_rate > -1e-3"));
  EXPECT_TRUE(holds("train.learning_rate == .5"));
  EXPECT_TRUE(holds("strategy.name == \"zero1\""));
  EXPECT_TRUE(holds("strategy.name == 'zero1'"));
  EXPECT_TRUE(holds("strategy.name < \"zero2\""));
  EXPECT_TRUE(holds("strategy.name in [\"ddp\", \"zero1\"]"));
  EXPECT_FALSE(holds("strategy.name in []"));
  EXPECT_TRUE(holds("2 in model.widths"));
  EXPECT_FALSE(holds("4 in model.widths"));
  EXPECT_TRUE(holds("model.widths == [2, 3]"));
  EXPECT_FALSE(holds("model.widths == [2, 3, 4]"));
  EXPECT_TRUE(holds("9007199254740993 == 9007199254740993"));
  EXPECT_FALSE(holds("9007199254740993 == 9007199254740992"));
  EXPECT_TRUE(holds("9007199254740993 > 9007199254740992"));
}

TEST(Expression, AndBindsTighterThanOrAndNotTighterThanBoth) {
  EXPECT_TRUE(holds("true || false && false"));
  EXPECT_FALSE(holds("(true || false) && false"));
  EXPECT_TRUE(holds("!false && true"));
  EXPECT_FALSE(holds("!(false || true)"));
  EXPECT_TRUE(holds("!!data.shuffle"));
  EXPECT_TRUE(holds("  data.shuffle  &&  ! ( resources.nodes != 4 ) "));
  EXPECT_TRUE(holds("false && true || true"));
}

TEST(Expression, TheRightSideIsNotLookedAtWhereTheLeftDecides) {
  EXPECT_FALSE(holds("strategy.name == \"osdp\" && strategy.slices == 4"));
  EXPECT_TRUE(holds("strategy.name == \"zero1\" || strategy.slices == 4"));
}

TEST(Expression, ListsItsKeysOnce) {
  EXPECT_THAT(Expression("a.b == 1 || !(c in [1]) && a.b < 2").keys(), ElementsAre("a.b", "c"));
  EXPECT_THAT(Expression("index == 1").keys(), ElementsAre("index"));  // `in` is a word of its own only
}

TEST(Expression, ErrorsNameTheColumn) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "column 1: the expression ends where a key, a literal, ! or ( is accepted"},
      {"resources.nodes ==", "column 19: the expression ends"},
      {"resources.nodes = 4", "column 17: `= 4` where an operator is accepted: == != < <= > >= in && ||"},
      {"resources.nodes 4", "column 17: `4` where an operator"},
      {"(resources.nodes == 4", "column 22: `)` is missing"},
      {"2 in [1, 2", "column 11: `]` is missing"},
      {"strategy.name == \"zero1", "column 18: the text has no closing quote"},
      {"resources.nodes == 4x", "column 20: `4x` is not a number"},
      {"resources.nodes == 1.2.3", "column 20: `1.2.3` is not a number"},
      {"&& true", "column 1: `&& true` where a key"},
      {"1 < 2 < 3", "column 7: `< 3` where an operator"},
      {"resources.nodes", "column 1: an integer where true or false is accepted: 4"},
      {"!resources.nodes", "column 2: an integer where true or false is accepted"},
      {"true && 1", "column 9: an integer where true or false is accepted"},
      {"strategy.name == 4", "column 15: a string and an integer cannot be compared: \"zero1\" and 4"},
      {"data.shuffle < 4", "column 14: a truth value and an integer have no order"},
      {"strategy.name in \"zero1\"", "column 15: a string where a list is accepted after `in`"},
      {"strategy.slices == 4", "column 1: strategy.slices is unset at this point"},
  };
  for (const auto& [text, expected] : cases) {
    EXPECT_THAT(error_of(text), HasSubstr(expected)) << text;
  }
}

/// Recursion would overflow the stack, of the parser, of the evaluation or of the destructor.
TEST(Expression, NoTextIsTooDeepOrTooLong) {
  constexpr std::size_t many = 100'000;
  for (const char bracket : {'!', '(', '['}) {
    EXPECT_THAT(error_of(std::string(many, bracket)),
                HasSubstr("column 65: ! ( and [ inside each other; accepted: 64 at most"));
  }
  for (const auto& [operation, operand] : {std::pair("||", "false"), std::pair("&&", "true")}) {
    std::string chain = operand;
    for (std::size_t i = 1; i < many; ++i) chain += std::string(operation) + operand;
    EXPECT_EQ(holds(chain), std::string_view(operand) == "true");
  }
  EXPECT_TRUE(holds(std::string(64, '!') + "true"));
  // Nor does a message repeat all of it.
  for (const std::string& text :
       {"1 == 1 " + std::string(many, '='), "&" + std::string(many, '&'), std::string(many, '1')}) {
    const std::string message = error_of(text);
    EXPECT_THAT(message, StartsWith("column "));
    EXPECT_LT(message.size(), 200U);
  }
}

}  // namespace
}  // namespace strata::test_expression
