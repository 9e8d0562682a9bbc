/// @file
/// A step of cyclic data parallelism whose parameters walk takes 2N passes and one update on N ranks: messages are
/// hidden, and stalls that a slot too few or a message too late would cause are not there.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cost/cost_model.hpp"
#include "lower/lower.hpp"
#include "models/graph_builder.hpp"
#include "sim/simulate.hpp"

namespace strata::test_walking_period {
namespace {

constexpr std::int64_t width = 16;

/// A stage a layer; before the first one a layer that takes no time, so that there too the backward reads parameters.
ModelGraph walking_layers(int num_layers) {
  GraphBuilder graph("layers");
  int x = graph.input("image", {width}, TensorRole::image);
  const int label = graph.input("label", {}, TensorRole::targets);
  for (int j = 0; j < num_layers; ++j) {
    graph.begin_block(fmt::format("block[{}]", j));
    if (j == 0) x = graph.linear("first", x, {.in = width, .out = width, .bias = false});
    x = graph.linear("linear", x, {.in = width, .out = width, .bias = false});
    graph.end_block();
  }
  graph.cross_entropy("loss", x, label);
  return graph.finish(1);
}

/// Passes of a microsecond each; of what the first layer has and does nothing counts.
struct EqualStages final : CostModel {
  EqualStages(double of_update, double of_message) : CostModel(1), update(of_update), message(of_message) {}
  CostSource source() const override { return CostSource::analytic; }
  std::string description() const override { return "equal stages"; }
  Cost kernel(const Program&, const Instruction& in) const override {
    if (in.name.find(".linear") == std::string::npos) return {0.0};
    switch (in.kernel) {
      case Kernel::linear_forward:
      case Kernel::linear_backward_weight: return {1e-6};
      case Kernel::sgd_momentum: return {1e-6 * update};
      default: return {0.0};
    }
  }
  CollectiveCost collective(Collective, std::int64_t, const Placement&) const override { return {1e-6 * message}; }
  double update, message;  ///< passes
};

/// In passes, of steps in the middle of many. Each parameter is a message of its own; the first stage has two.
double simulated_passes(int n, const std::string& fresh, double update, double message) {
  Plan plan;
  plan.strategy = "cyclic";
  plan.mesh = {.nodes = 1, .ranks_per_node = n, .axes = {{"micro_batch", n}}, .placement = "zero-ring"};
  plan.operators = {OperatorRule{.match = "*", .state = StateFactors{.walks = true}}};
  plan.stages.count = n;
  plan.schedule = {.kind = ScheduleKind::cyclic, .micro_batches = n, .fresh = fresh};
  plan.global_batch = n;
  plan.optimizer = {.kind = "sgd", .momentum = 0.5};
  const ModelGraph graph = walking_layers(n);
  std::vector<Program> programs;
  for (int rank = 0; rank < n; ++rank) {
    programs.push_back(lower(plan, graph, rank, [](const Program&, const Instruction&) { return std::int64_t{0}; }));
  }
  constexpr int num_counted = 12, num_steps = 5 * num_counted;
  const EqualStages costs(update, message);
  const SimulationResult result =
      simulate(unfolded(programs, n), costs, {.num_steps = num_steps, .keeps_events = false});
  double seconds = 0.0;
  for (int step = num_steps - 2 * num_counted; step < num_steps - num_counted; ++step) {
    seconds += result.steps[static_cast<std::size_t>(step)].back().step_seconds;
  }
  return seconds / num_counted * 1e6;
}

/// With the freshest table a sum on its way from rank to rank and the one that goes from the last rank to the owner
/// take one time step together at most; with the stalest a message may take half a time step at least.
TEST(WalkingPeriod, MessagesAreHiddenWithinTheirBudget) {
  constexpr double update = 0.125;
  for (const int n : {2, 3, 4, 8}) {
    for (const double message : {0.0, 0.25, 0.5}) {
      for (const char* fresh : {"none", "v2"}) {
        const double passes = simulated_passes(n, fresh, update, message);
        EXPECT_NEAR(passes, 2 * n + update, 0.005) << n << ", " << fresh << ", messages of " << message;
      }
    }
    EXPECT_GT(simulated_passes(n, "v2", update, 0.75), 2 * n + update + 0.1) << n;
  }
}

}  // namespace
}  // namespace strata::test_walking_period
