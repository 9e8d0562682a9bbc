/// @file
/// Sharded states train what replicas train: real models, every kind of sharding, overlap, recomputation, precision.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "mpi/exec/expect_same.hpp"
#include "mpi/exec/laid_out.hpp"
#include "mpi/exec/sharding.hpp"
#include "partition/shards.hpp"

namespace strata::test_sharding {
namespace {

/// One state of each kind: what is sharded, over a part of the ranks or all of them.
std::vector<StateFactors> some_states(const Factor& grid) {
  const Factor node{grid.in_node, 1};
  return {{.p = {}, .g = {}, .os = grid},
          {.p = {}, .g = grid, .os = grid},
          {.p = grid, .g = grid, .os = grid},
          {.p = node, .g = node, .os = node},
          {.p = node, .g = grid, .os = grid},
          {.p = {}, .g = {}, .os = node},
          {.p = grid, .g = grid, .os = grid, .p_backward = node}};
}

TEST_F(Sharding, RealModelsWithClippingMomentumAndThreeMicroBatches) {
  for (const RealModel& model : models()) {
    constexpr int micro_batches = 3;
    Training training = real(model, 24 * micro_batches);
    training.plan.schedule.micro_batches = micro_batches;
    training.steps = 2;
    training.learning_rate = std::string_view(model.name) == "vgg" ? 1e-4 : 0.01;
    training.plan.optimizer.momentum = 0.5;
    training.plan.optimizer.weight_decay = 0.01;
    training.plan.optimizer.clip_norm = 1.0;
    const Trained reference = train(training, "ddp", size(), world, engine);
    const std::vector<StateFactors> states = some_states(grid());
    for (std::size_t s = 0; s < states.size(); ++s) {
      for (std::size_t w = 0; w < std::size(ways); ++w) {
        // One model sees every state in every way, the others each state in one.
        if (model.name != std::string_view("gpt") && w != s % std::size(ways)) continue;
        const Trained ours = train_plan(training, plan(training, states[s], ways[w]), world, engine);
        expect_same(ours, reference, fmt::format("{}: {}", model.name, name(states[s], ways[w], micro_batches)));
      }
    }
  }
}

/// Some operators sharded, others not: OSDP's plans.
TEST_F(Sharding, EveryOperatorItsOwnWay) {
  for (const RealModel& model : models()) {
    if (model.name != std::string_view("gpt")) continue;
    Training training = real(model, 24);
    training.steps = 2;
    training.learning_rate = 0.01;
    training.plan.optimizer.clip_norm = 1.0;
    const Trained reference = train(training, "ddp", size(), world, engine);
    for (const Way& way : ways) {
      Plan mixed = plan(training, {.p = {}, .g = {}, .os = grid()}, way);
      mixed.operators.push_back({.match = "*.mlp.*", .state = StateFactors{.p = grid(), .g = grid(), .os = grid()}});
      mixed.operators.push_back({.match = "block[1].attn.qkv", .state = StateFactors{}});
      expect_same(train_plan(training, mixed, world, engine), reference, way.gradients);
    }
  }
}

/// Gathers and reductions move, values do not.
TEST_F(Sharding, OverlapAndRecomputationChangeNoBit) {
  for (const RealModel& model : models()) {
    Training training = real(model, 48);
    training.plan.schedule.micro_batches = 2;
    training.steps = 2;
    training.learning_rate = 0.01;
    const std::vector<StateFactors> states = some_states(grid());
    for (std::size_t s = 0; s < states.size(); ++s) {
      const StateFactors& state = states[s];
      const Way& way = ways[s % std::size(ways)];
      Plan plain = plan(training, state, way);
      plain.overlap.all_reduce = "none";
      const Trained reference = train_plan(training, plain, world, engine);
      for (const Recompute recompute : {Recompute::none, Recompute::block}) {
        for (const char* after : {"keep", "regather"}) {
          if (recompute == Recompute::none && after == std::string_view("regather")) continue;
          Plan overlapped = plain;
          overlapped.recompute = recompute;
          overlapped.gathered_after_recompute = after;
          overlapped.overlap.all_reduce = "backward";
          overlapped.overlap.gather = "next_layer";
          overlapped.overlap.gather_backward = "next_module";
          overlapped.overlap.reduce_scatter = "grad_input";
          overlapped.overlap.broadcast = "next_forward";
          overlapped.overlap.replica_stream = after == std::string_view("keep") ? "own" : "shared";
          const Trained ours = train_plan(training, overlapped, world, engine);
          const std::string what =
              fmt::format("{}: {}, recompute {}, {}", model.name, name(state, way, 2), to_string(recompute), after);
          EXPECT_EQ(ours.parameters, reference.parameters) << what;
          EXPECT_EQ(ours.losses, reference.losses) << what;
        }
      }
    }
  }
}

/// Updated parameters come back alone, some together, or all together.
TEST_F(Sharding, MessagesOfSeveralParametersChangeNoBit) {
  for (const RealModel& model : models()) {
    Training training = real(model, 48);
    training.steps = 3;
    training.learning_rate = 0.01;
    const Factor node{grid().in_node, 1};
    for (const StateFactors& state : {StateFactors{.os = grid()}, StateFactors{.p = node, .g = node, .os = grid()}}) {
      for (const Way& way : ways) {
        const Plan alone = plan(training, state, way);
        const Trained reference = train_plan(training, alone, world, engine);
        for (const std::int64_t bytes : {20'000, 1 << 30}) {
          for (const char* under : {"none", "next_forward"}) {
            Plan together = alone;
            together.overlap.spread_bytes = bytes;
            together.overlap.broadcast = under;
            together.overlap.replica_stream = bytes < 1 << 30 ? "own" : "shared";
            const Trained ours = train_plan(training, together, world, engine);
            const std::string what =
                fmt::format("{}: {}, {} bytes, under {}", model.name, name(state, way, 1), bytes, under);
            EXPECT_EQ(ours.parameters, reference.parameters) << what;
            EXPECT_EQ(ours.losses, reference.losses) << what;
            EXPECT_EQ(ours.last_step.bytes_sent, predicted_bytes(ours.program)) << what;
            EXPECT_EQ(predicted_bytes(ours.program), predicted_bytes(reference.program)) << what;
          }
        }
      }
    }
  }
}

TEST_F(Sharding, AdamInMixedPrecision) {
  for (const RealModel& model : models()) {
    Training training = real(model, 24);
    training.steps = 3;
    training.learning_rate = 1e-3;
    training.plan.optimizer = {.kind = "adamw", .weight_decay = 0.1};
    for (const DType dtype : {DType::f32, DType::bf16}) {
      if (size() > 2 && dtype == DType::f32) continue;
      training.plan.dtypes = {dtype, dtype};
      const Trained reference = train(training, "ddp", size(), world, engine);
      const std::vector<StateFactors> states = some_states(grid());
      for (std::size_t s = 0; s < states.size(); ++s) {
        const Way& way = ways[s % std::size(ways)];
        const Trained ours = train_plan(training, plan(training, states[s], way), world, engine);
        for (std::size_t i = 0; i < reference.losses.size(); ++i) {
          const double tolerance = dtype == DType::f32 ? 1e-4 : 1e-2;
          EXPECT_NEAR(ours.losses[i], reference.losses[i], tolerance * reference.losses[i])
              << model.name << " step " << i << ", " << name(states[s], way, 1);
        }
      }
    }
  }
}

}  // namespace
}  // namespace strata::test_sharding
