/// @file
/// Experiment files: reading, overrides, conditions between options, ids that last.

#include <gmock/gmock.h>

#include "base/error.hpp"
#include "config/options.hpp"
#include "config/sweep.hpp"
#include "support/refusal.hpp"

namespace strata::test_experiment {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* minimal = R"(name = "tiny"
[model]
name = "gpt-nano"
[data]
format = "synthetic"
[train]
global_batch = 8
[strategy]
name = "ddp"
)";

Experiment only_point(const std::string& text, const std::vector<std::string>& overrides = {}) {
  const Expansion expansion = expand(read_experiment(text, "e.toml", overrides), "cpu");
  EXPECT_EQ(expansion.points.size(), 1U);
  return expansion.points[0].experiment;
}

TEST(ExperimentFile, ReadsValuesAndKeepsDefaults) {
  const Experiment experiment = only_point(std::string(minimal) + R"(slices = 4
[communication]
emulated_link = { alpha_us = 50, gbit_per_s = 1.5 }
[resources]
nodes = 2
ranks_per_node = 3
)");
  EXPECT_EQ(experiment.name, "tiny");
  EXPECT_EQ(experiment.model.name, "gpt-nano");
  EXPECT_FALSE(experiment.model.layers.has_value());
  EXPECT_EQ(experiment.train.global_batch.samples, 8);
  EXPECT_EQ(experiment.train.optimizer, "adamw");
  EXPECT_EQ(std::get<std::int64_t>(experiment.strategy.options.at("slices")), 4);
  EXPECT_EQ(experiment.communication.emulated_alpha_us, 50.0);
  EXPECT_EQ(experiment.communication.emulated_gbit_per_s, 1.5);
  EXPECT_EQ(experiment.num_ranks(), 6);
  EXPECT_EQ(experiment.num_machines(), 2);
  EXPECT_EQ(experiment.ranks_per_machine(), 3);
  EXPECT_EQ(experiment.where("train.global_batch"), "e.toml:7");
  EXPECT_EQ(experiment.where("strategy.slices"), "e.toml:10");
}

TEST(ExperimentFile, EmulatedNodesShareOneMachine) {
  const Experiment experiment = only_point(std::string(minimal) + R"(
[communication.emulated_link]
gbit_per_s = 1
inside = { alpha_us = 5, gbit_per_s = 100 }
[resources]
nodes = 2
ranks_per_node = 3
)");
  EXPECT_EQ(experiment.communication.emulated_inside_alpha_us, 5.0);
  EXPECT_EQ(experiment.communication.emulated_inside_gbit_per_s, 100.0);
  EXPECT_EQ(experiment.num_ranks(), 6);
  EXPECT_EQ(experiment.num_machines(), 1);
  EXPECT_EQ(experiment.ranks_per_machine(), 6);
}

TEST(ExperimentFile, TheTextOfAnExperimentReadsBackToIt) {
  const Experiment experiment = only_point(std::string(minimal) + R"(slices = 4
order = "by \"size\""
[overlap]
bucket_mib = 0.5
[communication.emulated_link]
gbit_per_s = 10
)");
  const std::string text = to_text(experiment);
  const Experiment again = only_point(text);
  EXPECT_EQ(to_text(again), text);
  EXPECT_EQ(canonical_keys(again), canonical_keys(experiment));
  EXPECT_EQ(again.strategy, experiment.strategy);
  EXPECT_EQ(again.communication, experiment.communication);
}

TEST(ExperimentFile, ErrorsNameFileLineKeyAndAccepted) {
  const std::pair<std::string, const char*> cases[] = {
      {"name = \"a", "e.toml:1: not TOML"},
      {"", "e.toml: name: missing"},
      {"name = \"a\"\n[strategy]\nname = \"ddp\"", "e.toml: model.name: missing: a preset or a family"},
      {"name = \"a\"\n[model]\nname = \"x\"", "e.toml: strategy.name: missing"},
      {"name = \"a\"\ntrain = 3", "e.toml:2: train: an integer where a table is accepted"},
      {"name = \"a\"\n[trian]\nseed = 1",
       "e.toml:2: trian: unknown key; did you mean \"train\"?; accepted: name, title"},
      {"name = \"a\"\n[train]\nseeed = 1", "e.toml:3: train.seeed: unknown key; did you mean \"train.seed\"?"},
      {"name = \"a\"\n[train]\nseed = \"1\"", "e.toml:3: train.seed: a string where integer is accepted"},
      {"name = \"a\"\n[train.deep]\nseed = 1", "e.toml:3: train.deep.seed: unknown key; did you mean \"train.seed\"?"},
      {"name = {}", "e.toml:1: name: a table where string is accepted"},
      {"name = \"a\"\nsweep = 3", "e.toml:2: sweep: an integer where a table is accepted"},
      {"name = \"a\"\n[model]\nname = [\"x\", \"y\"]", "e.toml:3: model.name: a list where string is accepted"},
      {"name = \"a\"\n[train]\nseed = 1\nseed = 2", "e.toml:4: not TOML"},
  };
  for (const auto& [text, expected] : cases) {
    EXPECT_THAT(user_error([&, t = text] { read_experiment(t, "e.toml"); }), HasSubstr(expected));
  }
  EXPECT_THAT(user_error([] { load_experiment("/nowhere/e.toml"); }), HasSubstr("/nowhere/e.toml: cannot be read"));
}

TEST(ExperimentFile, OverridesAreTomlAndStringsNeedNoQuotes) {
  const Experiment experiment = only_point(
      minimal, {"train.dtype=bf16", "model.name=\"gpt-micro\"", "train.learning_rate=1e-2", "data.shuffle=false",
                "model.widths=[3, 4]", "strategy.slices=8", "strategy.order=1f1b", "title=two words = fine"});
  EXPECT_EQ(experiment.train.dtype, "bf16");
  EXPECT_EQ(experiment.model.name, "gpt-micro");
  EXPECT_EQ(experiment.train.learning_rate, 1e-2);
  EXPECT_FALSE(experiment.data.shuffle);
  EXPECT_THAT(experiment.model.widths, ElementsAre(3, 4));
  EXPECT_EQ(std::get<std::int64_t>(experiment.strategy.options.at("slices")), 8);
  EXPECT_EQ(std::get<std::string>(experiment.strategy.options.at("order")), "1f1b");
  EXPECT_EQ(experiment.title, "two words = fine");
  EXPECT_EQ(experiment.where("train.dtype"), "--set");
}

TEST(ExperimentFile, BadOverridesSayWhy) {
  const std::pair<const char*, const char*> cases[] = {
      {"train.dtype", "--set train.dtype: accepted: key=value"},
      {"=3", "accepted: key=value"},
      {"train.dtyp=bf16", "--set: train.dtyp: unknown key; did you mean \"train.dtype\"?"},
      {"train.dtype=fp8", "--set: train.dtype: unknown word \"fp8\""},
      {"train.seed=one", "--set train.seed: `one` is not a TOML value"},
      {"train.seed=1\ntrain.steps = 2", "more than one TOML value"},
      {"train.seed=1.5", "--set: train.seed: a real where integer is accepted"},
      {"strategy.x=a b", "--set strategy.x: `a b` is not a TOML value"},
      {"sweep.product={}", "--set: sweep.product: unknown key"},
  };
  for (const auto& [override_text, expected] : cases) {
    EXPECT_THAT(user_error([&, o = override_text] { read_experiment(minimal, "e.toml", {o}); }), HasSubstr(expected));
  }
}

TEST(ExperimentVerify, ConditionsBetweenOptions) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"train.global_batch_tokens=64"},
       "--set: train.global_batch_tokens: exactly one of train.global_batch (samples, 8) and train.global_batch_tokens "
       "(tokens, 64)"},
      {{"train.global_batch=0"}, "--set: train.global_batch: exactly one of"},
      {{"data.paths=[\"a\"]"}, "--set: data.paths: files are given, but data.format is \"synthetic\""},
      {{"data.format=text"}, "data.paths: missing: data.format \"text\" reads files"},
      {{"measure.min_steps=200"}, "--set: measure.min_steps: 200 is more than measure.max_steps = 100"},
      {{"communication.emulated_link.alpha_us=5"}, "set communication.emulated_link.gbit_per_s > 0"},
      {{"communication.emulated_link.inside.alpha_us=5"}, "set communication.emulated_link.inside.gbit_per_s > 0"},
      {{"communication.emulated_link.inside.gbit_per_s=5"}, "emulated nodes have an emulated link between them"},
      {{"train.schedule=step"}, "--set: train.schedule: \"step\" needs train.decay_steps > 0"},
      {{"train.schedule=cosine"}, "--set: train.schedule: \"cosine\" needs an end"},
      {{"data.augment=[\"flip\", \"mirror\"]"},
       "--set: data.augment: unknown word \"mirror\"; accepted: crop | resized_crop | flip"},
      {{"data.augment=[\"flip\", \"crop\", \"flip\"]"},
       "data.augment: [\"flip\", \"crop\", \"flip\"] has \"flip\" twice"},
      {{"data.augment=[\"crop\", \"flip\", \"resized_crop\"]"},
       "\"resized_crop\"]; accepted: one of \"crop\" and \"resized_crop\""},
      {{"train.steps=10", "train.epochs=2"}, "--set: train.epochs: 2, but train.steps = 10 too; accepted: one of"},
      {{"train.decay_epochs=[30]"},
       "--set: train.decay_epochs: [30] is of train.schedule = \"step\", and it is \"const"},
      {{"train.schedule=step", "train.decay_epochs=[30]", "train.decay_steps=5"},
       "--set: train.decay_epochs: [30], but train.decay_steps = 5 too; accepted: one of the two"},
      {{"train.schedule=step", "train.decay_epochs=[30, 30]"},
       "--set: train.decay_epochs: [30, 30]; accepted: each larger than the one before"},
      {{"train.schedule=step", "train.decay_epochs=[0, 30]"}, "train.decay_epochs: 0 is out of range; accepted: >= 1"},
      {{"train.min_learning_rate=1"}, "--set: train.min_learning_rate: 1 is more than train.learning_rate = 0.0003"},
      {{"name=a/b"}, "--set: name: \"a/b\" names a folder"},
      {{"name="}, "--set: name: empty"},
      {{"strategy.name="}, "--set: strategy.name: empty"},
  };
  for (const auto& [overrides, expected] : cases) {
    EXPECT_THAT(user_error([&, o = overrides] { only_point(minimal, o); }), HasSubstr(expected));
  }
  EXPECT_NO_THROW(only_point(minimal, {"train.schedule=cosine", "train.steps=10"}));
  EXPECT_NO_THROW(only_point(minimal, {"train.schedule=cosine", "train.epochs=10"}));
  EXPECT_NO_THROW(only_point(minimal, {"train.schedule=step", "train.epochs=9", "train.decay_epochs=[3, 6]"}));
  EXPECT_NO_THROW(only_point(minimal, {"train.global_batch=0", "train.global_batch_tokens=64"}));
}

TEST(ExperimentVerify, TheBatchIsANumberOrThePlanners) {
  const Experiment planners = only_point(minimal, {"train.global_batch=planner"});
  EXPECT_TRUE(planners.train.global_batch.is_planners);
  EXPECT_THAT(to_text(planners), HasSubstr("global_batch = \"planner\""));
  EXPECT_NE(point_id(planners), point_id(only_point(minimal)));
  // A later word takes an earlier one back.
  EXPECT_EQ(only_point(minimal, {"train.global_batch=planner", "train.global_batch=8"}).train.global_batch,
            only_point(minimal).train.global_batch);
  EXPECT_THAT(user_error([] { only_point(minimal, {"train.global_batch=\"planners\""}); }),
              HasSubstr("train.global_batch: a string where integer or \"planner\" is accepted"));
  EXPECT_THAT(user_error([] {
                only_point(minimal, {"train.global_batch=planner", "train.global_batch_tokens=64"});
              }),
              HasSubstr("exactly one of train.global_batch (samples, \"planner\")"));
}

TEST(ExperimentId, StaysWhatItIs) {
  // These are names of result folders that exist: a change of an id is a break, not a refactoring.
  const auto id = [](const std::vector<std::string>& overrides, const char* backend) {
    return expand(read_experiment(minimal, "e.toml", overrides), backend).points[0].id;
  };
  EXPECT_EQ(id({}, "cpu"), "1a35898b9c85");
  EXPECT_EQ(id({}, "simulated"), "892d016fab92");
  EXPECT_EQ(id({"train.dtype=bf16", "resources.ranks_per_node=4"}, "cpu"), "560d74e28df8");
  EXPECT_EQ(id({"strategy.slices=4", "data.shuffle=false", "train.learning_rate=0.001"}, "cpu"), "b0ea90de3eea");
}

TEST(ExperimentId, IsMadeOfCanonicalKeys) {
  const Experiment experiment =
      only_point(minimal, {"train.clip_norm=1", "title=x", "measure.max_steps=9", "expect=[\"oom\"]",
                           "checkpoint.every=5", "checkpoint.keep=1", "checkpoint.restart_from=latest"});
  EXPECT_THAT(canonical_keys(experiment),
              ElementsAre(CanonicalKey{"backend", "\"cpu\""}, CanonicalKey{"data.format", "\"synthetic\""},
                          CanonicalKey{"model.name", "\"gpt-nano\""}, CanonicalKey{"name", "\"tiny\""},
                          CanonicalKey{"strategy.name", "\"ddp\""}, CanonicalKey{"train.clip_norm", "1.0"},
                          CanonicalKey{"train.global_batch", "8"}));
  EXPECT_EQ(point_id(experiment), point_id(only_point(minimal, {"train.clip_norm=1.0"})));
}

TEST(ExperimentId, DefaultsThatAreSpelledOutDoNotCount) {
  const std::string id = point_id(only_point(minimal));
  for (const Option& option : all_options()) {
    const auto value = value_of(Experiment{}, option.key);
    if (option.required || !value || option.key == "data.format" || option.key == "train.global_batch") {
      continue;
    }
    EXPECT_EQ(point_id(only_point(minimal, {std::string(option.key) + "=" + toml_text(*value)})), id) << option.key;
  }
  EXPECT_NE(point_id(only_point(minimal, {"train.seed=2"})), id);
  EXPECT_NE(point_id(only_point(minimal, {"strategy.slices=2"})), id);
  EXPECT_EQ(id.size(), 12U);
  EXPECT_EQ(id.find_first_not_of("0123456789abcdef"), std::string::npos);
}

TEST(Experiment, Words) {
  EXPECT_EQ(dtype_of_word("fp32"), DType::f32);
  EXPECT_EQ(dtype_of_word("bf16"), DType::bf16);
  EXPECT_THAT(user_error([] { dtype_of_word("f32"); }), HasSubstr("accepted: fp32 | bf16"));
  EXPECT_EQ(path_beside("experiments/a.toml", "data/x.txt"), "experiments/data/x.txt");
  EXPECT_EQ(path_beside("a.toml", "x.txt"), "x.txt");
  EXPECT_EQ(path_beside("experiments/a.toml", "../x.txt"), "x.txt");
  EXPECT_EQ(path_beside("experiments/a.toml", "/abs/x.txt"), "/abs/x.txt");
}

}  // namespace
}  // namespace strata::test_experiment
