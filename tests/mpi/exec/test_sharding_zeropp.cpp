/// @file
/// ZeRO++ trains what ddp trains: its second shards to rounding, quantised weights on their grid with ==, other weights
/// and gradients within what the blocks lose, and every rank sends the bytes that its Program counts.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/quantization.hpp"
#include "mpi/exec/sharding.hpp"
#include "partition/shards.hpp"

namespace strata::test_sharding_zeropp {
namespace {

class ZeroPlusPlus : public Sharding {
 protected:
  Plan plan(const Training& training, const Factor& secondary, const Quantization& quantization) const {
    Plan plan = Sharding::plan(training, {.p = grid(), .g = grid(), .os = grid(), .p_backward = secondary}, ways[0]);
    plan.quantization = quantization;
    return plan;
  }
  std::vector<Factor> secondaries() const {
    std::set<std::pair<int, int>> all = {{1, 1}, {grid().in_node, 1}, {grid().in_node, grid().nodes}};
    std::vector<Factor> factors;
    for (const auto& [in_node, nodes] : all) factors.push_back({in_node, nodes});
    return factors;
  }
};

void expect_bytes(const Trained& trained, const std::string& what) {
  const BytesByCollective predicted = bytes_by_collective(trained.program);
  for (std::size_t k = 0; k < std::size(predicted.bytes); ++k) {
    EXPECT_EQ(trained.last_step.bytes_sent[k], predicted.bytes[k])
        << to_string(static_cast<Collective>(k)) << ", " << what;
  }
}

constexpr int small_block = 16;

/// Initial weights are -1/2, 0 and 1/2: every one a code of its block.
TEST_F(ZeroPlusPlus, WeightsOnTheGridOfTheirBlocksAreExact) {
  for (const int micro_batches : {1, 2}) {
    const Training training = exact(micro_batches);
    const Trained reference = train(training, "ddp", size(), world, engine);
    for (const Factor& secondary : secondaries()) {
      for (const char* overlap : {"none", "next_layer"}) {
        Plan quantized = plan(training, secondary, {.weights = "int8", .block = small_block});
        quantized.overlap.gather = overlap;
        quantized.overlap.gather_backward = overlap == std::string_view("none") ? "none" : "next_module";
        const Trained ours = train_plan(training, quantized, world, engine);
        const std::string what = fmt::format("second shard over {}, gather {}", to_string(secondary), overlap);
        EXPECT_EQ(ours.parameters, reference.parameters) << what;
        EXPECT_EQ(ours.losses, reference.losses) << what;
        expect_bytes(ours, what);
      }
    }
  }
}

/// One step of plain SGD at learning rate 1: a parameter moves by its gradient. Each of N ranks' parts is rounded to
/// within half a step of its block, the node's sum again.
TEST_F(ZeroPlusPlus, GradientsAreOffByAtMostHalfAStepARankAndHop) {
  for (const auto& [word, bits] : {std::pair{"int8", 8}, {"int4", 4}}) {
    for (const RealModel& model : models()) {
      Training training = real(model, 24);
      training.learning_rate = 1.0;
      const Trained reference = train(training, "ddp", size(), world, engine);
      for (const char* overlap : {"none", "grad_input"}) {
        Plan quantized = plan(training, {grid().in_node, 1}, {.gradients = word, .block = small_block});
        quantized.overlap.reduce_scatter = overlap;
        const Trained ours = train_plan(training, quantized, world, engine);
        const std::string what = fmt::format("{} {} {}", model.name, word, overlap);
        EXPECT_EQ(ours.losses, reference.losses) << what;  // of the weights before the step
        expect_bytes(ours, what);
        double lost = 0.0, moved = 0.0;
        for (const auto& [parameter, after] : reference.parameters) {
          for (std::size_t i = 0; i < after.size(); ++i) {
            const double gradient = after[i] - reference.initial.at(parameter)[i];
            const double apart = ours.parameters.at(parameter)[i] - after[i];
            lost += apart * apart;
            moved += gradient * gradient;
          }
        }
        // Half a step is 1/2c of the largest of 16 numbers, and errors are uniform within it: in the mean a third of
        // its square. A block's largest is at most 4 times its root mean square, and N ranks' parts are at most √N
        // times as large as their sum shows.
        const double bound = 4.0 / (2.0 * largest_code(bits)) / std::sqrt(3.0) * std::sqrt(2.0 * size());
        EXPECT_LE(std::sqrt(lost / moved), bound) << what;
        EXPECT_GT(lost, 0.0) << what;
      }
    }
  }
}

/// Sec. 6's claim in small: quantised training learns what ddp learns, to within a per cent of the loss.
TEST_F(ZeroPlusPlus, QuantizedTrainingFollowsDdp) {
  for (const RealModel& model : models()) {
    if (model.name == std::string_view("vgg")) continue;
    Training training = real(model, 24);
    training.steps = 8;
    training.learning_rate = 0.01;
    training.plan.optimizer.clip_norm = 1.0;
    const Trained reference = train(training, "ddp", size(), world, engine);
    for (const char* gradients : {"int8", "int4"}) {
      for (const Recompute recompute : {Recompute::none, Recompute::block}) {
        Plan quantized = plan(training, {grid().in_node, 1}, {.weights = "int8", .gradients = gradients});
        quantized.recompute = recompute;
        quantized.overlap.gather = "next_layer";
        quantized.overlap.gather_backward = "next_module";
        quantized.overlap.reduce_scatter = "grad_input";
        const Trained ours = train_plan(training, quantized, world, engine);
        const std::string what = fmt::format("{}, {}, recompute {}", model.name, gradients, to_string(recompute));
        for (std::size_t i = 0; i < reference.losses.size(); ++i) {
          EXPECT_NEAR(ours.losses[i], reference.losses[i], 0.01 * reference.losses[i]) << what << ", step " << i;
        }
        EXPECT_NE(ours.losses, reference.losses) << what;
        expect_bytes(ours, what);
      }
    }
  }
}

/// A second shard over one rank is all of the parameter: backward gathers nothing.
TEST_F(ZeroPlusPlus, SecondShardsOfAnySizeTrainTheSame) {
  for (const RealModel& model : models()) {
    Training training = real(model, 24);
    training.steps = 2;
    training.learning_rate = 0.01;
    Plan plain = plan(training, grid(), {});
    plain.operators[0].state->p_backward.reset();
    const Trained reference = train_plan(training, plain, world, engine);
    for (const Factor& secondary : secondaries()) {
      const Trained ours = train_plan(training, plan(training, secondary, {}), world, engine);
      EXPECT_EQ(ours.parameters, reference.parameters) << model.name << " " << to_string(secondary);
      expect_bytes(ours, model.name);
    }
  }
}

}  // namespace
}  // namespace strata::test_sharding_zeropp
