/// @file
/// The table of options: every row reads, refuses and prints; the reference lacks none.

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>
#include <set>

#include "base/error.hpp"
#include "config/accepted.hpp"
#include "config/options.hpp"
#include "config/reference.hpp"
#include "support/refusal.hpp"
#include "support/source_dir.hpp"

namespace strata::test_options {
namespace {

using ::testing::HasSubstr;

/// An accepted value of the option that is not its default.
TomlValue other_value(const Option& option) {
  Experiment any;
  const std::size_t type = option.field(any).index();
  const auto current = value_of(any, option.key);
  std::vector<TomlValue> candidates = {{true, 0}, {false, 0}};
  for (const std::int64_t integer : {1, 2, 7}) {
    candidates.push_back({integer, 0});
    candidates.push_back({TomlValue::Array{{integer, 0}}, 0});
  }
  for (const double real : {0.25, 0.00001}) {
    candidates.push_back({real, 0});
  }
  std::vector<std::string> words = split_words(option.accepted);
  words.emplace_back("text");
  for (const std::string& word : words) {
    candidates.push_back({word, 0});
    candidates.push_back({TomlValue::Array{{word, 0}}, 0});
  }
  for (const TomlValue& candidate : candidates) {
    Experiment trial;
    try {
      assign(trial, option.key, candidate, "test");
    } catch (const UserError&) {
      continue;
    }
    const auto held = value_of(trial, option.key);
    if (held && (!current || toml_text(*held) != toml_text(*current))) {
      return *held;
    }
  }
  ADD_FAILURE() << option.key << " (type " << type << ") accepts nothing but its default";
  return {};
}

/// An id is made of what differs from the defaults: another default would be another experiment under the same id.
/// STRATA_UPDATE_GOLDEN=1 accepts the present ones.
TEST(Options, DefaultsAreThoseOfEarlierVersions) {
  std::string present = "# The value of every option that has one where an experiment says nothing.\n";
  for (const Option& option : all_options()) {
    const auto value = value_of(Experiment{}, option.key);
    if (value && !option.required) present += fmt::format("{} = {}\n", option.key, toml_text(*value));
  }
  const std::string path = test::source_dir() + "/tests/golden/defaults.toml";
  if (std::getenv("STRATA_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << present;
  std::ifstream file(path);
  EXPECT_EQ(present, std::string(std::istreambuf_iterator<char>(file), {}));
}

TEST(Options, KeysAreUniqueAndHaveHelp) {
  std::set<std::string_view> keys;
  for (const Option& option : all_options()) {
    EXPECT_TRUE(keys.insert(option.key).second) << option.key;
    EXPECT_FALSE(option.help.empty()) << option.key;
    EXPECT_EQ(find_option(option.key), &option);
    for (const char c : option.key) {
      EXPECT_TRUE((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.') << option.key;
    }
  }
}

TEST(Options, DefaultsAreAccepted) {
  for (const Option& option : all_options()) {
    const auto value = value_of(Experiment{}, option.key);
    if (value && !option.required) {
      Experiment experiment;
      EXPECT_NO_THROW(assign(experiment, option.key, *value, "test")) << option.key;
      EXPECT_EQ(toml_text(*value_of(experiment, option.key)), toml_text(*value));
    }
  }
}

TEST(Options, EveryRowHasAFieldOfItsOwn) {
  for (const Option& changed : all_options()) {
    Experiment experiment;
    const TomlValue value = other_value(changed);
    assign(experiment, changed.key, value, "file:7");
    EXPECT_EQ(experiment.where(changed.key), "file:7");
    for (const Option& option : all_options()) {
      const auto before = value_of(Experiment{}, option.key), after = value_of(experiment, option.key);
      const bool same = before.has_value() == after.has_value() && (!before || toml_text(*before) == toml_text(*after));
      EXPECT_EQ(same, &option != &changed) << changed.key << " changes " << option.key;
    }
  }
}

TEST(Options, WrongTypesAreRefusedByName) {
  for (const Option& option : all_options()) {
    Experiment experiment;
    const TomlValue table{TomlValue::Table{}, 0};
    EXPECT_THAT(user_error([&] { assign(experiment, option.key, table, "a.toml:3"); }),
                HasSubstr("a.toml:3: " + std::string(option.key) + ": a table where " + std::string(type_name(option)) +
                          " is accepted"));
  }
  Experiment experiment;
  EXPECT_THAT(user_error([&] {
                assign(experiment, "train.seed", {1.0, 0}, "--set");
              }),
              HasSubstr("--set: train.seed: a real where integer is accepted"));
  EXPECT_THAT(user_error([&] {
                assign(experiment, "data.paths", {TomlValue::Array{{true, 0}}, 0}, "--set");
              }),
              HasSubstr("data.paths: a list where list of strings is accepted"));
  EXPECT_THAT(user_error([&] {
                assign(experiment, "train.learning_rate", {std::numeric_limits<double>::infinity(), 0}, "--set");
              }),
              HasSubstr("train.learning_rate: inf is not a finite number"));
}

TEST(Options, AnIntegerIsAReal) {
  Experiment experiment;
  assign(experiment, "train.clip_norm", {std::int64_t{2}, 0}, "--set");
  EXPECT_EQ(experiment.train.clip_norm, 2.0);
  assign(experiment, "model.dropout", {std::int64_t{0}, 0}, "--set");
  EXPECT_EQ(experiment.model.dropout, 0.0);
}

TEST(Options, UnsetTakesAnOptionalBackToThePreset) {
  Experiment experiment;
  assign(experiment, "model.layers", {std::int64_t{2}, 0}, "--set");
  assign(experiment, "model.layers", {std::string("unset"), 0}, "--set");
  EXPECT_FALSE(experiment.model.layers.has_value());
  EXPECT_THAT(user_error([&] {
                assign(experiment, "train.seed", {std::string("unset"), 0}, "--set");
              }),
              HasSubstr("a string where integer is accepted"));
}

TEST(Options, OutOfRangeAndUnknownWordsSayWhatIsAccepted) {
  const std::tuple<const char*, TomlValue, const char*> cases[] = {
      {"model.dropout", {1.0, 0}, "model.dropout: 1.0 is out of range; accepted: >= 0 and < 1"},
      {"train.learning_rate", {0.0, 0}, "train.learning_rate: 0.0 is out of range; accepted: > 0"},
      {"train.decay_factor", {1.5, 0}, "accepted: > 0 and <= 1"},
      {"resources.nodes", {std::int64_t{0}, 0}, "resources.nodes: 0 is out of range; accepted: >= 1"},
      {"train.dtype", {std::string("fp16"), 0}, "train.dtype: unknown word \"fp16\"; accepted: fp32 | bf16"},
      {"train.optimizer", {std::string("AdamW"), 0}, "did you mean \"adamw\"?; accepted: sgd | adam | adamw"},
      {"expect",
       {TomlValue::Array{{std::string("oom"), 0}, {std::string("hang"), 0}}, 0},
       "expect: unknown word \"hang\"; accepted: oom | refused"},
      {"model.widths", {TomlValue::Array{{std::int64_t{0}, 0}}, 0}, "model.widths: 0 is out of range; accepted: >= 1"},
  };
  for (const auto& [key, value, expected] : cases) {
    Experiment experiment;
    EXPECT_THAT(user_error([&, k = key, v = value] { assign(experiment, k, v, "f:1"); }), HasSubstr(expected));
  }
}

TEST(Options, UnknownKeysAreRefusedWithTheNearestAndTheSection) {
  Experiment experiment;
  const TomlValue one{std::int64_t{1}, 0};
  EXPECT_THAT(user_error([&] { assign(experiment, "train.learning_rat", one, "f:1"); }),
              HasSubstr("f:1: train.learning_rat: unknown key; did you mean \"train.learning_rate\"?; accepted in "
                        "[train]: global_batch, "));
  EXPECT_THAT(user_error([&] { assign(experiment, "nam", one, "f:1"); }),
              HasSubstr("f:1: nam: unknown key; did you mean \"name\"?; accepted: name, title"));
  EXPECT_THAT(user_error([&] { assign(experiment, "trian.seed", one, "f:1"); }),
              HasSubstr("did you mean \"train.seed\"?"));
  EXPECT_THAT(user_error([&] { assign(experiment, "communication.emulated_link.beta", one, "f:1"); }),
              HasSubstr("accepted in [communication.emulated_link]: alpha_us, gbit_per_s"));
  EXPECT_THAT(user_error([&] { assign(experiment, "strategy.", one, "f:1"); }), HasSubstr("unknown key"));
  EXPECT_THAT(user_error([&] { assign(experiment, "backend", one, "f:1"); }), HasSubstr("unknown key"));
}

TEST(Options, StrategyOptionsPassThrough) {
  Experiment experiment;
  assign(experiment, "strategy.slices", {std::int64_t{4}, 0}, "f:1");
  assign(experiment, "strategy.greedy", {true, 0}, "f:2");
  assign(experiment, "strategy.limit", {0.5, 0}, "f:3");
  assign(experiment, "strategy.order", {std::string("size"), 0}, "f:4");
  const std::map<std::string, OptionValue> expected = {
      {"slices", std::int64_t{4}}, {"greedy", true}, {"limit", 0.5}, {"order", std::string("size")}};
  EXPECT_EQ(experiment.strategy.options, expected);
  EXPECT_EQ(experiment.where("strategy.limit"), "f:3");
  EXPECT_EQ(experiment.where("strategy.other"), "default");
  EXPECT_THAT(user_error([&] {
                assign(experiment, "strategy.list", {TomlValue::Array{}, 0}, "f:5");
              }),
              HasSubstr("f:5: strategy.list: a list where true or false, a number or a string is accepted"));
}

TEST(Accepted, WordsConditionsAndProse) {
  EXPECT_EQ(refusal(OptionValue{std::string("b")}, "a | b"), "");
  EXPECT_THAT(refusal(OptionValue{std::string("c")}, "a | b"), HasSubstr("unknown word \"c\""));
  EXPECT_THAT(refusal(OptionValue{std::string("c")}, "only"), HasSubstr("accepted: only"));
  EXPECT_EQ(refusal(OptionValue{std::string("c")}, ""), "");
  EXPECT_EQ(refusal(OptionValue{std::string("c")}, "a name of an operator"), "");
  EXPECT_EQ(refusal(OptionValue{std::int64_t{0}}, ">= 0"), "");
  EXPECT_THAT(refusal(OptionValue{std::int64_t{-1}}, ">= 0"), HasSubstr("-1 is out of range; accepted: >= 0"));
  EXPECT_THAT(refusal(OptionValue{std::int64_t{0}}, "> 0"), HasSubstr("out of range"));
  EXPECT_EQ(refusal(OptionValue{0.999}, ">= 0 and < 1"), "");
  EXPECT_THAT(refusal(OptionValue{1.0}, ">= 0 and < 1"), HasSubstr("out of range"));
  EXPECT_EQ(refusal(OptionValue{1.0}, "<= 1"), "");
  EXPECT_THAT(refusal(OptionValue{1.5}, "<= 1"), HasSubstr("out of range"));
  EXPECT_EQ(refusal(OptionValue{std::int64_t{3}}, "divides the ranks"), "");
}

TEST(Reference, ContainsEveryOption) {
  const std::string page = reference_markdown();
  for (const Option& option : all_options()) {
    const std::size_t dot = option.key.find('.');
    const std::string key(dot == std::string_view::npos ? option.key : option.key.substr(dot + 1));
    const std::string section =
        dot == std::string_view::npos ? "## Top level" : "## [" + std::string(option.key.substr(0, dot)) + "]";
    const std::size_t begin = page.find(section);
    ASSERT_NE(begin, std::string::npos) << section;
    const std::string part = page.substr(begin, page.find("\n## ", begin + 1) - begin);
    EXPECT_THAT(part, HasSubstr("| `" + key + "` |"));
  }
  EXPECT_THAT(page, HasSubstr("| `dtype` | string | `\"fp32\"` | fp32 \\| bf16 | "));
  EXPECT_THAT(page, HasSubstr("| `name` | string | `required` |"));
  EXPECT_THAT(page, HasSubstr("| `layers` | integer or \"unset\" | `unset` | >= 1 |"));
}

}  // namespace
}  // namespace strata::test_options
