/// @file
/// A run that stops and goes on is the run that did not stop: bit for bit under the same plan; every value and state
/// with == under any other; within rounding from there on.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>

#include "base/error.hpp"
#include "mpi/exec/networks.hpp"
#include "mpi/run/checkpointing.hpp"

namespace strata::run::test_checkpoint {
namespace {

class Checkpoint : public Checkpointing {
 protected:
  /// Every way to hold states that this world has; the first is a replica on every rank.
  std::vector<std::pair<std::string, Plan>> plans(Training training) const {
    std::vector<std::pair<std::string, Plan>> all;
    const bool has_blocks = training.graph.name.starts_with("gpt");
    for (const char* mode : {"ddp", "zero1", "zero2", "zero3"}) all.emplace_back(mode, plan_of(training, mode, size()));
    if (size() > 1 && has_blocks) {
      training.options["stages"] = std::int64_t{2};
      all.emplace_back("1f1b", plan_of(training, "1f1b", size()));
    }
    Plan late = plan_of(training, "zero1", size());
    late.overlap.broadcast = "next_forward";
    all.emplace_back("zero1, updates spread under the next forward", late);
    late.optimizer.sharding = "inter_tensor";
    late.optimizer.spread = "broadcast";
    late.optimizer.gradients = "all_reduce";
    all.emplace_back("zero1, whole tensors, spread under the next forward", late);
    if (size() == 4) {
      Plan nested = plan_of(training, "zero1", size());
      nested.strategy = "sharded";
      nested.mesh = {.nodes = 2, .ranks_per_node = 2, .axes = {{"data", 4}}};
      const StateFactors factors{.p = {2, 1}, .g = {2, 2}, .os = {2, 2}};
      nested.operators = {OperatorRule{.match = "*", .state = factors}};
      nested.overlap.broadcast = "next_forward";
      all.emplace_back("p 2x1 g 2x2 os 2x2, spread under the next forward", nested);
      nested.operators.front().state = StateFactors{.p = {2, 1}, .g = {2, 1}, .os = {2, 1}};
      all.emplace_back("mics", nested);
    }
    return all;
  }

  /// All values and states of two checkpoints, with ==. Looked at by rank 0.
  void expect_equal_files(const std::string& ours, const std::string& theirs, const ModelGraph& graph,
                          const std::vector<std::string>& states, const std::string& what) const {
    if (world.rank() != 0) return;
    std::vector<results::CheckpointParameter> parameters;
    for (const Parameter& p : graph.parameters) parameters.push_back({p.name, p.num_elements()});
    const results::CheckpointFile a(ours, parameters, states, false);
    const results::CheckpointFile b(theirs, parameters, states, false);
    for (const auto& [name, num_elements] : parameters) {
      for (const std::string& state : states) {
        std::vector<float> mine(static_cast<std::size_t>(num_elements));
        std::vector<float> other(mine.size());
        a.read(name, state, 0, mine);
        b.read(name, state, 0, other);
        EXPECT_EQ(mine, other) << name << " " << state << ", " << what;
        // Zeros are equal whoever wrote them.
        if (name.ends_with("weight")) {
          EXPECT_GT(norm(mine), 0.0) << name << " " << state;
        }
      }
    }
  }
};

Training language_model(DType dtype) {
  Training training = real(real_models().front(), 24);
  training.plan.optimizer = {.kind = "adamw", .weight_decay = 0.1, .clip_norm = 1.0};
  training.plan.dtypes.compute = dtype;
  training.learning_rate = 1e-3;
  training.plan.schedule.micro_batches = 2;
  return training;
}

TEST_F(Checkpoint, StoppingChangesNoBit) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Training training = language_model(dtype);
    for (const auto& [name, plan] : plans(training)) {
      const std::string what = fmt::format("{} {}", name, to_string(dtype));
      const std::string where = folder(what);
      training.steps = 4;
      const Trained straight = train_plan(training, plan, world, engine);
      training.steps = 2;
      train_plan(saved_to(where, training), plan, world, engine);
      training.steps = 4;
      const Trained again = train_plan(from(where, 2, training), plan, world, engine);
      EXPECT_EQ(again.parameters, straight.parameters) << what;
      EXPECT_EQ(again.losses, std::vector<float>(straight.losses.begin() + 2, straight.losses.end())) << what;
      EXPECT_EQ(again.norms, std::vector<float>(straight.norms.begin() + 2, straight.norms.end())) << what;
      // Equal losses of a run that stands still would show nothing.
      EXPECT_NE(again.losses.front(), straight.losses.front()) << what;
    }
  }
}

TEST_F(Checkpoint, AShardingReadsWhatOthersWrote) {
  Training training = language_model(DType::f32);
  training.steps = 1;
  const auto all = plans(training);
  const std::vector<std::string> states = {"value", "m", "v"};
  for (std::size_t w = 0; w < all.size(); ++w) {
    const auto& [writer, plan] = all[w];
    train_plan(saved_to(folder(writer), training), plan, world, engine);
    // Everyone writes, everyone reads, several of the pairs.
    for (const std::size_t distance : {0UL, 1UL, 4UL}) {
      const auto& [reader, other] = all[(w + distance) % all.size()];
      const std::string what = fmt::format("written by {}, read by {}", writer, reader);
      // Not a step: what comes in goes out.
      train_plan(saved_to(folder(what), from(folder(writer), 1, training)), other, world, engine);
      expect_equal_files(results::checkpoint_path(folder(what), 1), results::checkpoint_path(folder(writer), 1),
                         training.graph, states, what);
    }
  }
}

TEST_F(Checkpoint, AnotherShardingAndNumberOfRanksGoesOnWithinRounding) {
  Training training = language_model(DType::f32);
  training.steps = 4;
  const Trained straight = train(training, "single", 1, world, engine);
  for (const auto& [writer, plan] : plans(training)) {
    training.steps = 2;
    train_plan(saved_to(folder(writer), training), plan, world, engine);
    training.steps = 4;
    // Every rank goes on alone with the whole batch.
    const Trained alone = train(from(folder(writer), 2, training), "single", 1, world, engine);
    const Trained sharded =
        train_plan(from(folder(writer), 2, training), plan_of(training, "zero3", size()), world, engine);
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_NEAR(alone.losses[i], straight.losses[i + 2], 1e-4 * straight.losses[i + 2]) << writer;
      EXPECT_NEAR(sharded.losses[i], straight.losses[i + 2], 1e-4 * straight.losses[i + 2]) << writer;
    }
  }
}

TEST_F(Checkpoint, AnyShardingGoesOnExactlyOnExactInputs) {
  Training training = exact(1);
  const Trained reference = train(training, "single", 1, world, engine);
  for (const auto& [writer, plan] : plans(training)) {
    // The exact step follows the restart …
    training.steps = 0;
    train_plan(saved_to(folder(writer), training), plan, world, engine);
    Training rest = training;
    rest.steps = 1;
    rest.initial = nullptr;
    for (const auto& [reader, other] : plans(training)) {
      const Trained ours = train_plan(from(folder(writer), 0, rest), other, world, engine);
      for (const auto& [name, values] : ours.parameters) EXPECT_EQ(values, reference.parameters.at(name)) << reader;
      EXPECT_EQ(ours.losses, reference.losses) << writer << ", " << reader;
    }
    // … or goes before it.
    training.steps = 1;
    train_plan(saved_to(folder(writer), training), plan, world, engine);
    const Trained alone = train(from(folder(writer), 1, rest), "single", 1, world, engine);
    EXPECT_EQ(alone.parameters, reference.parameters) << writer;
  }
}

TEST_F(Checkpoint, OfAnotherModelOrOptimizerIsRefused) {
  Training training = language_model(DType::f32);
  train(saved_to(folder("adam"), training), "ddp", size(), world, engine);
  const auto refusal = [&](const Training& other) {
    try {
      train(from(folder("adam"), 1, other), "ddp", size(), world, engine);
    } catch (const UserError& e) {
      return std::string(e.what());
    }
    return std::string("none");
  };
  Training momentum = training;
  momentum.plan.optimizer = {.kind = "sgd", .momentum = 0.9};
  EXPECT_THAT(refusal(momentum), testing::HasSubstr("step_1.h5: no momentum of "));
  Training other = training;
  other.graph = build_model({.name = "gpt-nano", .vocabulary = 103, .sequence_length = 33, .dropout = 0.1});
  EXPECT_THAT(refusal(other), testing::AllOf(testing::HasSubstr("elements, in the model it has")));
  other.graph = build_model({.name = "gpt-nano", .layers = 1, .vocabulary = 101, .sequence_length = 33});
  EXPECT_THAT(refusal(other), testing::HasSubstr("parameters, the model has"));
}

TEST_F(Checkpoint, WhatOneRankCannotWriteAllHearOf) {
  const Training training = language_model(DType::f32);
  if (world.rank() == 0) std::ofstream(folder("file")) << "no folder";
  Training blocked = saved_to(folder("file") + "/below", training);
  EXPECT_THROW(train(blocked, "zero1", size(), world, engine), UserError);
}

TEST_F(Checkpoint, OneThatIsNotAsItWasWrittenIsRefusedByAll) {
  const Training training = language_model(DType::f32);
  train(saved_to(folder("c"), training), "zero1", size(), world, engine);
  const std::string path = results::checkpoint_path(folder("c"), training.steps);
  const auto refusal = [&] {
    world.barrier();
    try {
      verify_checkpoint(world, path);
    } catch (const UserError& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(refusal(), "no error");
  const Parameter& last = training.graph.parameters.back();
  const auto overwrite = [&](float value) {
    if (world.rank() != 0) return;
    const std::vector<results::CheckpointParameter> parameters = [&] {
      std::vector<results::CheckpointParameter> all;
      for (const Parameter& p : training.graph.parameters) all.push_back({p.name, p.num_elements()});
      return all;
    }();
    const std::vector<float> values(4, value);
    results::CheckpointFile(path, parameters, {{"value"}}, true)
        .write(last.name, "value", last.num_elements() - 4, values);
  };
  overwrite(0.0F);
  EXPECT_THAT(refusal(), testing::HasSubstr("value of " + last.name + " is not what was written"));
  overwrite(std::numeric_limits<float>::quiet_NaN());
  EXPECT_THAT(refusal(), testing::HasSubstr("value of " + last.name + " is not finite"));
}

TEST_F(Checkpoint, AnUnfinishedOneIsNotThere) {
  Training training = language_model(DType::f32);
  train(saved_to(folder("c"), training), "zero1", size(), world, engine);
  if (world.rank() == 0) std::ofstream(folder("c") + "/step_9.h5.1.part") << "half of one";
  world.barrier();
  EXPECT_EQ(results::checkpoints_in(folder("c")), std::vector<std::int64_t>{1});
}

}  // namespace
}  // namespace strata::run::test_checkpoint
