/// @file
/// A step of cyclic data parallelism on a rank a micro-batch takes what the slowest cycle of its waits says, whatever
/// its table: the period of lowered Programs that are simulated, beside the ratio of the graph of their events.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"
#include "cost/cost_model.hpp"
#include "lower/lower.hpp"
#include "models/graph_builder.hpp"
#include "planners/cyclic/ring_period.hpp"
#include "sim/steady_state.hpp"

namespace strata {
namespace {

/// Of layer @p j and the one before it: no two products are equal.
std::int64_t width(int j) { return 8 + j * (j + 3); }

constexpr std::int64_t num_pixels = 4;
constexpr std::int64_t first_bytes = 4 * num_pixels * 8;

/// A stage a layer without bias; before the first one a layer that takes no time, so that there too the backward reads
/// the parameters.
ModelGraph layers(int num_layers) {
  GraphBuilder graph("layers");
  int x = graph.input("image", {num_pixels}, TensorRole::image);
  const int label = graph.input("label", {}, TensorRole::targets);
  for (int j = 0; j < num_layers; ++j) {
    graph.begin_block(fmt::format("block[{}]", j));
    if (j == 0) x = graph.linear("first", x, {.in = num_pixels, .out = width(0), .bias = false});
    x = graph.linear("linear", x, {.in = width(j), .out = width(j + 1), .bias = false});
    graph.end_block();
  }
  graph.cross_entropy("loss", x, label);
  return graph.finish(1);
}

/// Each stage's passes are one kernel each; what else runs takes no time, and no transfer slows another.
class StageCosts final : public CostModel {
 public:
  explicit StageCosts(std::vector<StageSeconds> stages) : CostModel(1), stages_(std::move(stages)) {}
  CostSource source() const override { return CostSource::analytic; }
  std::string description() const override { return "stages"; }
  Cost kernel(const Program&, const Instruction& in) const override {
    for (std::size_t j = 0; j < stages_.size(); ++j) {
      if (!in.name.starts_with(fmt::format("block[{}].linear", j))) continue;
      switch (in.kernel) {
        case Kernel::linear_forward: return {stages_[j].forward};
        case Kernel::linear_backward_weight: return {stages_[j].backward};
        case Kernel::sgd_momentum: return {stages_[j].update};
        default: return {0.0};
      }
    }
    return {0.0};
  }
  /// Sums are as long as parameters.
  CollectiveCost collective(Collective, std::int64_t bytes, const Placement&) const override {
    if (bytes == first_bytes) return {0.0};
    for (std::size_t j = 0; j < stages_.size(); ++j) {
      const auto stage = static_cast<int>(j);
      const std::int64_t before = j == 0 ? first_bytes : 0;
      if (bytes == 4 * width(stage) * width(stage + 1) + before) return {stages_[j].sum};
      if (bytes == 4 * width(stage) * width(stage + 1)) return {stages_[j].sum};
    }
    throw InternalError(fmt::format("no stage has {} bytes", bytes));
  }

 private:
  std::vector<StageSeconds> stages_;
};

Plan ring_plan(int micro_batches, int stages, const std::string& fresh) {
  Plan plan;
  plan.strategy = "cyclic";
  plan.mesh.ranks_per_node = micro_batches;
  plan.mesh.axes = {{"micro_batch", micro_batches}};
  plan.stages.count = stages;
  plan.schedule = {.kind = ScheduleKind::cyclic, .micro_batches = micro_batches, .fresh = fresh};
  plan.global_batch = micro_batches;
  plan.optimizer = {.kind = "sgd", .momentum = 0.5};
  return plan;
}

/// In the long run. That simulate_steady() sees when it has come is shown here too: the ratio is the event graph's.
double simulated_period(const Plan& plan, const ModelGraph& graph, const CostModel& costs) {
  std::vector<Program> programs;
  for (int rank = 0; rank < plan.mesh.num_ranks(); ++rank) {
    programs.push_back(lower(plan, graph, rank, [](const Program&, const Instruction&) { return std::int64_t{0}; }));
  }
  const SimulationResult result =
      simulate_steady(unfolded(programs, plan.mesh.num_ranks()), costs, {.num_steps = 2, .keeps_events = false});
  EXPECT_GT(result.period_steps, 0) << plan.schedule.fresh;
  return steady_step_seconds(result);
}

/// Whole microseconds, so that the simulator's nanoseconds are exact.
std::vector<StageSeconds> random_stages(int num_stages, std::uint64_t stream) {
  std::vector<StageSeconds> stages;
  std::uint64_t index = 0;
  const RandomStream random{.seed = 11, .stream = stream};
  const auto microseconds = [&](double most) {
    return 1e-6 * static_cast<double>(static_cast<int>(1 + most * random.uniform(index++)));
  };
  for (int j = 0; j < num_stages; ++j) {
    // Some messages take longer than a step's passes: they are what a step waits for.
    const double message = microseconds(stream % 4 == 0 ? 600 : 30);
    stages.push_back({.forward = microseconds(40),
                      .backward = microseconds(80),
                      .update = microseconds(8),
                      .sum = message,
                      .parameters = message});
  }
  return stages;
}

std::string table_of(std::uint64_t number, int rows, int columns) {
  std::string text;
  for (int cell = 0; cell < rows * columns; ++cell) {
    if (cell > 0 && cell % columns == 0) text += ' ';
    text += (number >> cell & 1) != 0 ? '1' : '0';
  }
  return text;
}

void expect_equal_periods(const Plan& plan, const ModelGraph& graph, const std::vector<StageSeconds>& stages) {
  const double expected = ring_period(plan.schedule, stages);
  EXPECT_NEAR(simulated_period(plan, graph, StageCosts(stages)), expected, 1e-9 * expected)
      << plan.schedule.fresh << ", " << plan.schedule.sum << ", " << plan.schedule.spread << ", "
      << plan.schedule.spare_stages << " spare";
}

TEST(RingPeriod, OfEveryTableOfThreeMicroBatchesAndStagesIsTheSimulators) {
  const ModelGraph graph = layers(3);
  for (std::uint64_t table = 0; table < 512; ++table) {
    Plan plan = ring_plan(3, 3, table_of(table, 3, 3));
    plan.schedule.spare_stages = table % 5 == 0 ? 0 : 1;
    plan.schedule.spread = table % 7 == 0 ? "direct" : "relay";
    plan.schedule.sum = table % 3 == 0 ? "after" : "inside";
    expect_equal_periods(plan, graph, random_stages(3, table));
  }
}

TEST(RingPeriod, OfAThousandTablesOfFourMicroBatchesToo) {
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const int stages = 3 + static_cast<int>(i % 3);
    const std::uint64_t cells = std::uint64_t{1} << (4 * stages);
    const double part = RandomStream{.seed = 12}.uniform(i);
    Plan plan =
        ring_plan(4, stages, table_of(static_cast<std::uint64_t>(part * static_cast<double>(cells)), 4, stages));
    plan.schedule.spare_stages = static_cast<int>(i % 4) % 3;
    plan.schedule.spread = i % 7 == 0 ? "direct" : "relay";
    plan.schedule.sum = i % 5 == 0 ? "after" : "inside";
    static const std::vector<ModelGraph> graphs = {layers(3), layers(4), layers(5)};
    expect_equal_periods(plan, graphs[static_cast<std::size_t>(stages - 3)], random_stages(stages, i));
  }
}

std::vector<StageSeconds> equal_stages(int num_stages, double update, double message) {
  const StageSeconds stage{.forward = 1.0, .backward = 1.0, .update = update, .sum = message, .parameters = message};
  return std::vector<StageSeconds>(static_cast<std::size_t>(num_stages), stage);
}

/// Passes of one time step each, and the freshest table: the last replica's update of the first stage is exposed, and
/// those of the others, which share its compute stream. Messages are not while a sum, an update and the parameters
/// behind it take one time step together, or two where sums are added behind the backward.
TEST(RingPeriod, MessagesAreHiddenWithinTheirBudget) {
  for (const int n : {2, 3, 4, 8}) {
    for (const bool inside : {true, false}) {
      Schedule schedule{.kind = ScheduleKind::cyclic, .micro_batches = n, .fresh = "v2"};
      schedule.sum = inside ? "inside" : "after";
      const double budget = inside ? 1.0 : 2.0;
      const double update = 0.125;
      const auto period = [&](double message) { return ring_period(schedule, equal_stages(n, update, message)); };
      const double least = n * (2.0 + update);
      const double most = (budget - update) / 2;
      EXPECT_NEAR(period(0.0), least, 1e-12) << n;
      EXPECT_NEAR(period(most), least, 1e-12) << n << (inside ? ", inside" : ", behind");
      EXPECT_GT(period(most + 0.25), least + 0.1) << n << (inside ? ", inside" : ", behind");
    }
  }
}

}  // namespace
}  // namespace strata
