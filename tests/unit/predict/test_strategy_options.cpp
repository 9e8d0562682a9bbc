/// @file
/// What a file may give under [strategy], against what a mode declares: every kind of mistake is named with its place.

#include <gmock/gmock.h>

#include <array>

#include "base/error.hpp"
#include "predict/strategy_options.hpp"

namespace strata::predict::test_strategy_options {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// One option of every type.
class Sample final : public Planner {
 public:
  std::string_view name() const override { return "sample"; }
  std::string_view summary() const override { return "for this test"; }
  std::string_view source() const override { return "none"; }
  std::span<const OptionRow> options() const override {
    static const std::array rows = {
        OptionRow{"slices", std::int64_t{4}, ">= 1 and < 65", "pieces of an operator"},
        OptionRow{"ratio", 0.5, "> 0", "a share"},
        OptionRow{"search", std::string("dfs"), "dfs | greedy", "how to look"},
        OptionRow{"verbose", false, "", "say more"},
    };
    return rows;
  }
  Plan plan(const PlanRequest& request) const override { return request.base; }
};

Experiment with(const std::string& key, const OptionValue& value) {
  Experiment experiment;
  experiment.strategy.name = "sample";
  experiment.strategy.options[key] = value;
  experiment.given_at["strategy." + key] = "e.toml:7";
  return experiment;
}

std::string mistake(const Experiment& experiment, const Planner& planner) {
  try {
    complete_strategy_options(experiment, planner);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}
std::string mistake(const std::string& key, const OptionValue& value) { return mistake(with(key, value), Sample()); }

TEST(StrategyOptions, DefaultsAreFilledIn) {
  Experiment experiment;
  experiment.strategy.name = "sample";
  const std::map<std::string, OptionValue> expected = {
      {"slices", std::int64_t{4}}, {"ratio", 0.5}, {"search", std::string("dfs")}, {"verbose", false}};
  EXPECT_EQ(complete_strategy_options(experiment, Sample()), expected);
}

TEST(StrategyOptions, WhatIsGivenStands) {
  const auto value_of = [](const std::string& key, const OptionValue& value) {
    return complete_strategy_options(with(key, value), Sample()).at(key);
  };
  EXPECT_EQ(value_of("slices", std::int64_t{64}), OptionValue(std::int64_t{64}));
  EXPECT_EQ(value_of("search", std::string("greedy")), OptionValue(std::string("greedy")));
  EXPECT_EQ(value_of("verbose", true), OptionValue(true));
  EXPECT_EQ(value_of("ratio", std::int64_t{2}), OptionValue(2.0)) << "an integer may stand for a number";
}

TEST(StrategyOptions, AnUnknownKeyNamesPlaceModeAndWhatIsAccepted) {
  EXPECT_EQ(mistake("slice", std::int64_t{4}),
            "e.toml:7: unknown key strategy.slice of mode sample; accepted: name, slices, ratio, search, verbose");
}

TEST(StrategyOptions, AModeWithoutOptionsAcceptsItsNameAlone) {
  for (const char* mode : {"single", "ddp"}) {
    const Experiment experiment = with("slices", std::int64_t{4});
    EXPECT_EQ(mistake(experiment, find_planner(mode)),
              std::string("e.toml:7: unknown key strategy.slices of mode ") + mode + "; accepted: name alone");
  }
}

TEST(StrategyOptions, AnotherType) {
  EXPECT_EQ(mistake("slices", 4.0),
            "e.toml:7: strategy.slices = 4 is of the wrong type; accepted: integer, >= 1 and < 65");
  EXPECT_EQ(mistake("slices", std::string("4")),
            "e.toml:7: strategy.slices = \"4\" is of the wrong type; accepted: integer, >= 1 and < 65");
  EXPECT_EQ(mistake("verbose", std::int64_t{1}),
            "e.toml:7: strategy.verbose = 1 is of the wrong type; accepted: boolean");
  EXPECT_THAT(mistake("ratio", true), HasSubstr("strategy.ratio = true is of the wrong type; accepted: number, > 0"));
  EXPECT_THAT(mistake("search", false), HasSubstr("accepted: string, dfs | greedy"));
}

TEST(StrategyOptions, AnUnknownWord) {
  EXPECT_THAT(mistake("search", std::string("gredy")),
              AllOf(HasSubstr("e.toml:7: strategy.search: "), HasSubstr("gredy"), HasSubstr("accepted: dfs | greedy")));
}

TEST(StrategyOptions, ANumberOutOfRange) {
  EXPECT_EQ(mistake("slices", std::int64_t{1}), "no error");
  for (const std::int64_t slices : {0, 65, -3}) {
    EXPECT_THAT(mistake("slices", slices), AllOf(HasSubstr("e.toml:7: strategy.slices: " + std::to_string(slices)),
                                                 HasSubstr("accepted: >= 1 and < 65")));
  }
  EXPECT_THAT(mistake("ratio", 0.0), HasSubstr("accepted: > 0"));
  EXPECT_THAT(mistake("ratio", std::int64_t{0}), HasSubstr("accepted: > 0"));
}

TEST(StrategyOptions, AnUnknownModeListsTheKnownOnes) {
  Experiment experiment;
  experiment.strategy.name = "zero7";
  try {
    complete_strategy_options(experiment);
    FAIL() << "must be refused";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("zero7"), HasSubstr("ddp, decomposed, gpipe, ")));
  }
}

TEST(StrategyOptions, TheReferenceHasEveryMode) {
  const std::string text = strategy_reference();
  for (const Planner* planner : all_planners()) {
    EXPECT_THAT(text, HasSubstr("### strategy.name = \"" + std::string(planner->name()) + "\""));
    for (const OptionRow& row : planner->options()) {
      EXPECT_THAT(text, HasSubstr("| `" + std::string(row.name) + "` |"));
    }
  }
}

}  // namespace
}  // namespace strata::predict::test_strategy_options
