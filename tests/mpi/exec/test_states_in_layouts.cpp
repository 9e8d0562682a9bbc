/// @file
/// States that are sharded over the ranks that hold the same part of a weight, inside tensor-parallel stages, as
/// `3d+osdp` decides them: what they train is what one rank trains, exact inputs with ==, transformers within rounding;
/// memory and bytes are the Program's. A stage a rank, or two that are interleaved.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

#include "base/error.hpp"
#include "mpi/exec/expect_same.hpp"
#include "mpi/exec/laid_out.hpp"
#include "planners/layouts/degrees_of_layers.hpp"
#include "planners/states/factors.hpp"

namespace strata::test_states_in_layouts {
namespace {

/// By whose links the mode compares ways to hold states.
Cluster described_cluster() {
  Cluster cluster;
  cluster.name = "described";
  cluster.nodes = 2;
  cluster.memory_bandwidth_bytes_per_second = 1e11;
  cluster.intra_node = {.latency_seconds = 1e-6, .bandwidth_bytes_per_second = 1e10};
  cluster.inter_node = {.latency_seconds = 5e-6, .bandwidth_bytes_per_second = 1e9};
  cluster.peak_flops_per_second = {{"f32", 1e11}};
  return cluster;
}

struct Shape {
  int nodes = 1;
  int places = 1;
  int chunks = 1;
  int tensor = 2;
  const char* sum = "scatter";
};

class StatesInLayouts : public LaidOut {
 protected:
  /// 2 data × 2 tensor ranks, or 4 × 2, 2 × 4 and 2 × 2 in two places, of one node and of two.
  std::vector<Shape> shapes() const {
    if (size() == 4) return {{1, 1}, {2, 1}, {1, 1, 1, 2, "all_reduce"}};
    return {{1, 1, 1, 2, "all_reduce"}, {2, 1, 1, 4}, {1, 2}, {2, 2, 1, 2, "all_reduce"}, {1, 2, 2}, {2, 2, 2}};
  }
  /// With replicated states.
  Plan of_shape(Training training, const Shape& shape) const {
    training.nodes = shape.nodes;
    training.options = {{"stages", std::int64_t{shape.places * shape.chunks}},
                        {"chunks", std::int64_t{shape.chunks}},
                        {"tensor", std::int64_t{shape.tensor}},
                        {"sum", std::string(shape.sum)}};
    return plan_of(training, "3d+osdp", size());
  }
  static Factor copies(const Plan& plan, const Shape& shape) {
    const Factor grid = data_grid(plan.mesh);
    return quotient(grid, nearest_ranks(grid, shape.tensor));
  }
  static Plan with(Plan plan, std::vector<OperatorRule> rules) {
    plan.operators.insert(plan.operators.end(), rules.begin(), rules.end());
    return plan;
  }
  /// All that are told apart: ZDP, SDP, optimizer states alone, and some operators of a block ZDP.
  static std::vector<std::vector<OperatorRule>> ways(const Factor& copies, const char* some) {
    const StateFactors zdp{.p = copies, .g = copies, .os = copies};
    return {{{.match = "*", .state = zdp}},
            {{.match = "*", .state = StateFactors{.p = {}, .g = copies, .os = copies}}},
            {{.match = "*", .state = StateFactors{.p = {}, .g = {}, .os = copies}}},
            {{.match = some, .state = zdp}}};
  }
  static std::string described(const Shape& shape, std::size_t way) {
    return fmt::format("{} nodes, {} places of {} stages, {} tensor ranks, {}, way {}", shape.nodes, shape.places,
                       shape.chunks, shape.tensor, shape.sum, way);
  }
};

TEST_F(StatesInLayouts, ExactInputsGiveEqualBits) {
  for (const int micro_batches : {2, 4}) {
    const Training training = exact(micro_batches, {16, 32, 48, 32, 16, 8});
    const Trained reference = alone(training);
    for (const Shape& shape : shapes()) {
      const Plan replicated = of_shape(training, shape);
      ASSERT_EQ(copies(replicated, shape).total(), size() / shape.places / shape.tensor);
      const auto all_ways = ways(copies(replicated, shape), "block[1..2].*");
      for (std::size_t w = 0; w < all_ways.size(); ++w) {
        for (const bool again : {false, true}) {
          Plan plan = with(replicated, all_ways[w]);
          plan.recompute = again ? Recompute::block : Recompute::none;
          plan.optimizer.gradients = again ? "reduce_scatter" : "all_reduce";
          if (again) plan.overlap = {.gather = "next_layer", .reduce_scatter = "grad_input"};
          const Trained ours = train_plan(training, plan, world, engine);
          for (const auto& [name, values] : ours.parameters) {
            EXPECT_EQ(values, reference.parameters.at(name)) << name << ", " << described(shape, w);
          }
          EXPECT_EQ(ours.losses, reference.losses) << described(shape, w);
        }
      }
    }
  }
}

TEST_F(StatesInLayouts, TransformersWithDropoutClippingAndTiedHeadsMoveTheProgrammedBytes) {
  for (const bool is_tied : {false, true}) {
    RealModel model = transformer("gpt");
    model.options.tied_head = is_tied;
    model.options.layers = 4;
    Training training = real(model, 24);
    training.vocabulary = 120;
    training.steps = 2;
    training.plan.schedule.micro_batches = 2;
    training.plan.optimizer.clip_norm = 0.5;
    const Trained reference = alone(training);
    for (const Shape& shape : shapes()) {
      const Plan replicated = of_shape(training, shape);
      const auto all_ways = ways(copies(replicated, shape), "block[1..2].mlp.*");
      for (std::size_t w = 0; w < all_ways.size(); ++w) {
        Plan plan = with(replicated, all_ways[w]);
        plan.recompute = w % 2 == 0 ? Recompute::block : Recompute::none;
        const std::string what = fmt::format("{}{}", is_tied ? "tied, " : "", described(shape, w));
        const Trained ours = train_plan(training, plan, world, engine);
        expect_same(ours, reference, what);
        EXPECT_EQ(ours.last_step.bytes_sent, predicted_bytes(ours.program)) << what;
      }
    }
  }
}

/// The mode itself where memory is short: between what replicas need and what shards need, every plan fits, needs what
/// it says and trains the same.
TEST_F(StatesInLayouts, PlansForLessMemoryFitAndTrainTheSame) {
  RealModel model = transformer("gpt");
  model.options.layers = 4;
  Training training = real(model, 24);
  training.vocabulary = 120;
  training.plan.schedule.micro_batches = 2;
  training.plan.optimizer.momentum = 0.5;
  training.cluster = described_cluster();
  training.plan.overlap.bucket_bytes = 1 << 12;
  const Trained reference = alone(training);
  for (const Shape& shape : shapes()) {
    training.plan.device_capacity_bytes = std::int64_t{1} << 40;
    const std::int64_t replicated = of_shape(training, shape).why.predicted_peak_bytes;
    int sharded = 0;
    for (const double share : {0.97, 0.9, 0.8}) {
      training.plan.device_capacity_bytes = static_cast<std::int64_t>(share * static_cast<double>(replicated));
      Plan plan;
      try {
        plan = of_shape(training, shape);
      } catch (const OutOfMemory&) {
        EXPECT_LT(share, 0.95) << described(shape, 0);
        continue;
      }
      const std::string what = fmt::format("{}, {} of {} bytes", described(shape, 0), share, replicated);
      EXPECT_LE(plan.why.predicted_peak_bytes, training.plan.device_capacity_bytes) << what;
      const auto is_zdp = [](const OperatorDecision& d) { return d.state.p.total() > 1; };
      sharded += std::ranges::any_of(resolve(plan, training.graph), is_zdp) ? 1 : 0;
      const Trained ours = train_plan(training, plan, world, engine);
      expect_same(ours, reference, what);
      // Beside the Program that has run, to the byte (train_plan), stands the one without scratch of libraries.
      std::int64_t most = 0;
      for (int rank = 0; rank < size(); ++rank) {
        const auto no_scratch = [](const Program&, const Instruction&) { return std::int64_t{0}; };
        most = std::max(most, lower(plan, training.graph, rank, no_scratch).arena_bytes);
      }
      EXPECT_EQ(most, plan.why.predicted_peak_bytes) << what;
    }
    EXPECT_GE(sharded, 1) << described(shape, 0);
  }
}

}  // namespace
}  // namespace strata::test_states_in_layouts
