/// @file
/// Sweeps: which points, in which order, what is refused, and the files that ship.

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.hpp"
#include "config/sweep.hpp"
#include "support/refusal.hpp"
#include "support/source_dir.hpp"

namespace strata::test_sweep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* base = R"(name = "sweep"
[model]
name = "gpt-nano"
[data]
format = "synthetic"
[train]
global_batch = 8
[strategy]
name = "ddp"
[sweep]
)";

Expansion expand_text(const std::string& sweep, const std::vector<std::string>& overrides = {}) {
  return expand(read_experiment(base + sweep, "s.toml", overrides), "cpu");
}

std::vector<std::string> values_of(const Expansion& expansion) {
  std::vector<std::string> all;
  for (const Point& point : expansion.points) {
    std::string joined;
    for (const AxisValue& axis : point.axes) {
      joined += (joined.empty() ? "" : " ") + axis.value;
    }
    all.push_back(joined);
  }
  return all;
}

TEST(Sweep, NoAxesIsOnePoint) {
  const Expansion expansion = expand_text("");
  ASSERT_EQ(expansion.points.size(), 1U);
  EXPECT_TRUE(expansion.points[0].axes.empty());
  EXPECT_EQ(expansion.name, "sweep");
}

TEST(Sweep, ProductTimesEveryZipGroupFirstAxisSlowest) {
  const Expansion expansion = expand_text(R"(
product = { "train.seed" = [1, 2], "resources.nodes" = [4, 1] }
zip = [ { "model.layers" = [3, 5], "train.dtype" = ["fp32", "bf16"] }, { "data.seed" = [7, 8] } ]
)");
  EXPECT_THAT(values_of(expansion),
              ElementsAre("1 4 3 \"fp32\" 7", "1 4 3 \"fp32\" 8", "1 4 5 \"bf16\" 7", "1 4 5 \"bf16\" 8",  //
                          "1 1 3 \"fp32\" 7", "1 1 3 \"fp32\" 8", "1 1 5 \"bf16\" 7", "1 1 5 \"bf16\" 8",  //
                          "2 4 3 \"fp32\" 7", "2 4 3 \"fp32\" 8", "2 4 5 \"bf16\" 7", "2 4 5 \"bf16\" 8",  //
                          "2 1 3 \"fp32\" 7", "2 1 3 \"fp32\" 8", "2 1 5 \"bf16\" 7", "2 1 5 \"bf16\" 8"));
  std::set<std::string> ids;
  for (std::size_t i = 0; i < expansion.points.size(); ++i) {
    EXPECT_EQ(expansion.points[i].index, static_cast<int>(i));
    ids.insert(expansion.points[i].id);
  }
  EXPECT_EQ(ids.size(), 16U);
  const Experiment& last = expansion.points[15].experiment;
  EXPECT_EQ(last.train.seed, 2);
  EXPECT_EQ(last.resources.nodes, 1);
  EXPECT_EQ(last.model.layers, 5);
  EXPECT_EQ(last.train.dtype, "bf16");
  EXPECT_EQ(last.data.seed, 8);
  EXPECT_EQ(last.where("train.seed"), "s.toml:12");
}

TEST(Sweep, KeysMayBeDottedTables) {
  EXPECT_THAT(values_of(expand_text("product.train.seed = [1, 2]\nproduct.train.steps = [3]")),
              ElementsAre("1 3", "2 3"));
  EXPECT_THAT(values_of(expand_text("product = { data.seed = [1, 2] }")), ElementsAre("1", "2"));
}

TEST(Sweep, AListElsewhereIsDataAndAnAxisOfListsHasListsAsValues) {
  const Expansion expansion = expand_text("product = { \"model.widths\" = [[1, 2], [3]] }");
  ASSERT_EQ(expansion.points.size(), 2U);
  EXPECT_THAT(expansion.points[0].experiment.model.widths, ElementsAre(1, 2));
  EXPECT_THAT(expansion.points[1].experiment.model.widths, ElementsAre(3));
}

TEST(Sweep, AnAxisOfTablesSaysWhatEachPointNeeds) {
  for (const char* text : {R"(product = { strategy = [{ name = "ddp" }, { name = "mics", group = "8x1" }] })",
                           R"(zip = [{ strategy = [{ name = "ddp" }, { name = "mics", group = "8x1" }] }])"}) {
    const Expansion expansion = expand_text(text);
    EXPECT_THAT(values_of(expansion), ElementsAre(R"({ name = "ddp" })", R"({ name = "mics", group = "8x1" })"));
    EXPECT_EQ(expansion.points[0].experiment.strategy.name, "ddp");
    EXPECT_TRUE(expansion.points[0].experiment.strategy.options.empty());
    EXPECT_EQ(expansion.points[1].experiment.strategy.name, "mics");
    EXPECT_EQ(std::get<std::string>(expansion.points[1].experiment.strategy.options.at("group")), "8x1");
    EXPECT_EQ(expansion.points[1].id, expand_text("", {"strategy.name=mics", "strategy.group=8x1"}).points[0].id);
    EXPECT_THAT(to_json(expansion), HasSubstr("\"group\": \"8x1\""));
  }
}

TEST(Sweep, AnIdDoesNotDependOnTheSweepAroundIt) {
  const Expansion alone = expand_text("", {"train.seed=2"});
  const Expansion two = expand_text("product = { \"train.seed\" = [1, 2] }");
  const Expansion more = expand_text("product = { \"train.seed\" = [3, 2], \"train.clip_norm\" = [0.0, 1.0] }");
  EXPECT_EQ(two.points[1].id, alone.points[0].id);
  EXPECT_EQ(more.points[2].id, alone.points[0].id);
}

TEST(Sweep, ExcludedPointsStayVisible) {
  const Expansion expansion =
      expand_text(R"(product = { "strategy.name" = ["single", "ddp"], "resources.nodes" = [1, 2] }
exclude = [ { when = 'strategy.name == "single" && resources.nodes > 1', reason = "one rank" } ]
)");
  EXPECT_THAT(values_of(expansion), ElementsAre("\"single\" 1", "\"ddp\" 1", "\"ddp\" 2"));
  ASSERT_EQ(expansion.excluded.size(), 1U);
  EXPECT_EQ(expansion.excluded[0].reason, "one rank");
  EXPECT_THAT(expansion.excluded[0].axes,
              ElementsAre(AxisValue{"strategy.name", "\"single\""}, AxisValue{"resources.nodes", "2"}));
}

TEST(Sweep, AnOverrideFixesAnAxisOfTheProduct) {
  const char* text = R"(product = { "strategy.name" = ["single", "ddp"], "resources.nodes" = [1, 2] }
exclude = [ { when = 'strategy.name == "single" && resources.nodes > 1', reason = "one rank" } ]
)";
  EXPECT_THAT(values_of(expand_text(text, {"strategy.name=ddp"})), ElementsAre("1", "2"));
  EXPECT_EQ(expand_text(text, {"strategy.name=ddp"}).points[1].id, expand_text(text).points[2].id);
}

TEST(Sweep, PrepareSeesEveryPointBeforeItsId) {
  const ExperimentFile file =
      read_experiment(std::string(base) + "product = { \"strategy.slices\" = [1, 2] }", "s.toml");
  const Expansion expansion = expand(file, "cpu", [](Experiment& experiment) {
    if (std::get<std::int64_t>(experiment.strategy.options.at("slices")) == 1) {
      experiment.strategy.options.erase("slices");  // the mode's default
    }
  });
  EXPECT_EQ(expansion.points[0].id, expand_text("").points[0].id);
  EXPECT_NE(expansion.points[1].id, expand_text("").points[0].id);
  EXPECT_THAT(user_error([&] { expand(file, "cpu", [](Experiment&) { throw UserError("no slices"); }); }),
              HasSubstr("no slices (at strategy.slices = 1)"));
}

TEST(Sweep, ErrorsNameFileLineKeyAndAccepted) {
  const std::pair<const char*, const char*> cases[] = {
      {"products = {}",
       "s.toml:11: sweep.products: unknown key; did you mean \"product\"?; accepted: product, zip, exclude"},
      {"product = {}", "s.toml:11: sweep.product: no axis"},
      {"product = 3", "s.toml:11: sweep.product: an integer where a table is accepted"},
      {"product = { \"train.seed\" = [] }",
       "s.toml:11: train.seed: an empty list where a list of at least one value is accepted"},
      {"product = { \"train.seed\" = 3 }",
       "s.toml:11: train.seed: an integer where a list of at least one value is accepted"},
      {"product = { \"train.sede\" = [3] }", "s.toml:11: train.sede: unknown key; did you mean \"train.seed\"?"},
      {"product = { \"train.seed\" = [3, \"x\"] }", "s.toml:11: train.seed: a string where integer is accepted"},
      {"product = { \"train.dtype\" = [\"fp32\",\n\"fp8\"] }", "s.toml:12: train.dtype: unknown word \"fp8\""},
      {"product = { name = [\"a\", \"b\"] }", "s.toml:11: name: belongs to the whole file and cannot be an axis"},
      {"product = { \"train.seed\" = [3], train = { seed = [4] } }", "s.toml:11: train.seed: is an axis twice"},
      {"product = { \"train.seed\" = [3] }\nzip = [ { \"train.seed\" = [4] } ]",
       "s.toml:12: train.seed: is an axis twice"},
      {"product = { strategy = [3] }",
       "s.toml:11: strategy: an integer where a table of options of [strategy] is accepted"},
      {"product = { strategy = [{}] }", "s.toml:11: strategy: an empty table where"},
      {"product = { train = [{ sead = 3 }] }", "s.toml:11: train.sead: unknown key"},
      {"product = { \"train.seed\" = [1], train = [{ seed = 3 }] }", "s.toml:11: train.seed: is an axis twice"},
      {"zip = {}", "s.toml:11: sweep.zip: a table where a list is accepted"},
      {"zip = [3]", "s.toml:11: sweep.zip: an integer where a table of equally long lists is accepted"},
      {"zip = [ {} ]", "s.toml:11: sweep.zip: no axis"},
      {"zip = [ { \"train.seed\" = [1, 2], \"data.seed\" = [1] } ]",
       "s.toml:11: sweep.zip: data.seed has 1 values, but train.seed has 2; accepted: lists of one length"},
      {"exclude = [3]", "s.toml:11: sweep.exclude: an integer where a table"},
      {"exclude = [ { when = 'true' } ]", "s.toml:11: sweep.exclude[0].reason: missing"},
      {"exclude = [ { reason = 'x' } ]", "s.toml:11: sweep.exclude[0].when: missing"},
      {"exclude = [ { when = 'true', reason = 'x', also = 1 } ]", "sweep.exclude[0].also: unknown key"},
      {"exclude = [ { when = 'train.seed = 1', reason = 'x' } ]", "s.toml:11: sweep.exclude[0].when: column 12: `= 1`"},
      {"exclude = [ { when = 'train.sed == 1', reason = 'x' } ]",
       "s.toml:11: sweep.exclude[0].when: train.sed: unknown key; did you mean \"train.seed\"?"},
  };
  for (const auto& [text, expected] : cases) {
    EXPECT_THAT(user_error([&, t = text] { read_experiment(std::string(base) + t, "s.toml"); }), HasSubstr(expected))
        << text;
  }
}

TEST(Sweep, ExpansionErrors) {
  const std::tuple<const char*, std::vector<std::string>, const char*> cases[] = {
      {"product = { \"train.seed\" = [1, 2] }\nexclude = [ { when = 'train.seed == 3', reason = 'x' } ]",
       {},
       "s.toml:12: sweep.exclude.when: `train.seed == 3` matches no point"},
      {"product = { \"train.seed\" = [1, 2] }\nexclude = [ { when = 'train.seed < 3', reason = 'x' } ]",
       {},
       "s.toml: sweep.exclude: all 2 points are excluded"},
      {"product = { \"train.seed\" = [1, 2] }\nexclude = [ { when = 'model.layers < 3', reason = 'x' } ]",
       {},
       "s.toml:12: sweep.exclude.when: column 1: model.layers is unset at this point"},
      {"product = { \"train.seed\" = [2, 3, 2] }",
       {},
       "s.toml: sweep: two points are the same experiment: train.seed = 2 and train.seed = 2"},
      {"product = { \"measure.max_steps\" = [20, 30] }", {}, "two points are the same experiment"},
      {"product = { \"train.schedule\" = [\"constant\", \"step\"] }",
       {},
       "s.toml:11: train.schedule: \"step\" needs train.decay_steps > 0 or train.decay_epochs (at train.schedule = "
       "\"step\")"},
      {"zip = [ { \"train.seed\" = [1, 2] } ]", {"train.seed=3"}, "--set train.seed=3: is an axis of sweep.zip"},
      {"product = { train = [{ seed = 1 }, { seed = 2 }] }",
       {"train.seed=3"},
       "--set train.seed=3: is an axis of tables of options"},
  };
  for (const auto& [text, overrides, expected] : cases) {
    EXPECT_THAT(user_error([&, t = text, o = overrides] { expand_text(t, o); }), HasSubstr(expected)) << text;
  }
}

TEST(Sweep, AShadowedExcludeIsNotUseless) {
  EXPECT_NO_THROW(expand_text(R"(product = { "train.seed" = [1, 2, 3] }
exclude = [ { when = 'train.seed > 1', reason = "a" }, { when = 'train.seed > 2', reason = "b" } ])"));
}

TEST(Sweep, TableAndJson) {
  const Expansion expansion =
      expand_text(R"(product = { "strategy.name" = ["single", "ddp"], "resources.nodes" = [1, 2] }
exclude = [ { when = 'strategy.name == "single" && resources.nodes > 1', reason = "one rank" } ]
)");
  const std::string& id = expansion.points[0].id;
  const std::string table = to_table(expansion);
  EXPECT_THAT(table, HasSubstr("point  id            ranks  strategy.name  nodes\n0      " + id +
                               "  1      single         1\n"));
  EXPECT_THAT(table, HasSubstr("-      excluded      -      single         2      one rank\n"));

  const auto json = nlohmann::json::parse(to_json(expansion));
  EXPECT_EQ(json["name"], "sweep");
  ASSERT_EQ(json["points"].size(), 3U);
  EXPECT_EQ(json["points"][2]["index"], 2);
  EXPECT_EQ(json["points"][0]["id"], id);
  EXPECT_EQ(json["points"][2]["ranks"], 2);
  EXPECT_EQ(json["points"][2]["axes"]["resources.nodes"], 2);
  EXPECT_EQ(json["points"][2]["axes"]["strategy.name"], "ddp");
  EXPECT_EQ(json["points"][0]["keys"]["train.global_batch"], 8);
  EXPECT_EQ(json["excluded"][0]["reason"], "one rank");
}

TEST(Sweep, EveryExperimentFileThatShipsExpands) {
  int num_files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(test::source_dir() + "/experiments")) {
    const std::filesystem::path path = entry.path();
    if (path.extension() != ".toml" || path.parent_path().filename() == "clusters") {
      continue;
    }
    ++num_files;
    const ExperimentFile file = load_experiment(path.string());
    const Expansion expansion = expand(file, "cpu");
    for (const Point& point : expansion.points) {
      for (const std::string& data : point.experiment.data.paths) {
        // What does not ship stands in a folder of the checkout that users fill, as the file's comment says how.
        const std::filesystem::path found = path_beside(file.file_name, data);
        const bool is_users = found.lexically_normal().string().starts_with(test::source_dir() + "/data/");
        EXPECT_TRUE(is_users || std::filesystem::exists(found)) << path << ": " << data;
      }
    }
  }
  EXPECT_GE(num_files, 2);
}

TEST(Sweep, QuickstartTrainsTwoModelsOnOneTwoAndFourRanks) {
  const Expansion expansion = expand(load_experiment(test::source_dir() + "/experiments/quickstart.toml"), "cpu");
  std::multiset<std::int64_t> ranks;
  std::multiset<std::string> models;
  for (const Point& point : expansion.points) {
    ranks.insert(point.experiment.num_ranks());
    models.insert(point.experiment.model.name);
    EXPECT_GE(point.experiment.train.steps, 20);  // the first ten and the last ten are compared
  }
  EXPECT_EQ(ranks, (std::multiset<std::int64_t>{1, 1, 2, 2, 4, 4}));
  EXPECT_EQ(models.count("vgg13-cifar"), 3U);
}

TEST(Sweep, AsManyPointsAsAreAccepted) {
  std::string seeds = "1";
  for (int seed = 2; seed <= 1000; ++seed) seeds += fmt::format(", {}", seed);
  const auto product = [&](const std::vector<const char*>& keys) {
    std::string text;
    for (const char* key : keys) text += fmt::format("product.\"{}\" = [{}]\n", key, seeds);
    return text + "[[sweep.exclude]]\nwhen = \"true\"\nreason = \"all of them\"\n";
  };
  EXPECT_THAT(
      user_error([&] {
        expand_text(product({"train.seed", "data.seed", "simulate.seed"}));
      }),
      HasSubstr("s.toml:13: sweep: 1000 of train.seed x 1000 of data.seed x 1000 of simulate.seed are more points "
                "than are accepted: 100000 with those that are excluded"));
  EXPECT_THAT(user_error([&] { expand_text(product({"train.seed"})); }), HasSubstr("all 1000 points are excluded"));
}

/// A point's file is written from what was said, and its job reads it.
TEST(Sweep, OverridesAreUtf8) {
  for (const std::string override_text :
       {"title=a\xff", "cluster=\xff", "data.paths=['\xff']", "job.partition=\xc0\xaf"}) {
    const std::string key = override_text.substr(0, override_text.find('='));
    EXPECT_THAT(user_error([&] { read_experiment("", "s.toml", {override_text}); }),
                AllOf(HasSubstr("--set " + key + ": byte 0x"), HasSubstr("of the value; accepted: UTF-8")));
  }
}

/// Sums and products of such values would overflow in whoever counts steps or bytes.
TEST(Sweep, NumbersThatNothingCanHaveAreRefused) {
  const std::string integer = fmt::format("{}", std::int64_t{1} << 62), real = "1e300";
  for (const auto& [key, value] : {std::pair("train.steps", integer), std::pair("measure.warmup_steps", integer),
                                   std::pair("measure.min_steps", integer), std::pair("measure.max_steps", integer),
                                   std::pair("resources.memory_gib", real)}) {
    EXPECT_THAT(user_error([&] { read_experiment("", "s.toml", {fmt::format("{}={}", key, value)}); }),
                HasSubstr(fmt::format("--set: {}: ", key)))
        << key;
  }
}

TEST(Sweep, WhatNobodyGaveIsSaidWithTheFile) {
  EXPECT_THAT(user_error([] {
                expand(read_experiment("name = \"x\"\nmodel.name = \"m\"\nstrategy.name = \"s\"\n", "s.toml"), "cpu");
              }),
              HasSubstr("s.toml: default: train.global_batch: exactly one of"));
}

}  // namespace
}  // namespace strata::test_sweep
