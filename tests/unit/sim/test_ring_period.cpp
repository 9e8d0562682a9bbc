/// @file
/// A step of cyclic data parallelism on a rank a micro-batch takes what the slowest cycle of its waits says, whatever
/// its table: the period of lowered Programs that are simulated, beside the ratio of the graph of their events.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/random.hpp"
#include "partition/fresh_table.hpp"
#include "planners/cyclic/ring_period.hpp"
#include "sim/steady_state.hpp"
#include "support/deep.hpp"
#include "unit/sim/ring_of_layers.hpp"

namespace strata::test_ring_period {
namespace {

using test::layers;
using test::ring_plan;
using test::ring_programs;
using test::StageCosts;

/// In the long run. That simulate_steady() sees when it has come is shown here too: the ratio is the event graph's.
double simulated_period(const Plan& plan, const ModelGraph& graph, const CostModel& costs) {
  const std::vector<Program> programs = ring_programs(plan, graph);
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
      << plan.schedule.spare_stages << " spare, " << plan.schedule.shift << ", " << plan.schedule.updater;
}

TEST(RingPeriod, OfEveryTableOfThreeMicroBatchesAndStagesIsTheSimulators) {
  const ModelGraph graph = layers(3);
  for (std::uint64_t table = 0; table < 512; ++table) {
    Plan plan = ring_plan(3, 3, table_of(table, 3, 3));
    plan.schedule.spare_stages = table % 5 == 0 ? 0 : 1;
    plan.schedule.spread = table % 7 == 0 ? "direct" : "relay";
    plan.schedule.sum = table % 3 == 0 ? "after" : "inside";
    plan.schedule.updater = table % 4 == 3 ? "first_user" : "last";
    expect_equal_periods(plan, graph, random_stages(3, table));
  }
}

TEST(RingPeriod, OfManyTablesOfFourMicroBatchesToo) {
  for (std::uint64_t i = 0; i < (is_deep() ? 1000 : 250); ++i) {
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

/// Ranks that keep a distance, by tables within v2; as many stages as micro-batches, more and fewer.
TEST(RingPeriod, OfShiftsIsTheSimulators) {
  for (std::uint64_t i = 0; i < 96; ++i) {
    const auto [n, k] = std::vector{std::pair{3, 3}, {2, 3}, {4, 4}, {4, 2}}[i % 4];
    Plan plan = ring_plan(n, k, "");
    for (const std::string& row : freshest(n, k)) plan.schedule.fresh += (plan.schedule.fresh.empty() ? "" : " ") + row;
    const RandomStream random{.seed = 13, .stream = i};
    for (std::uint64_t at = 0; char& cell : plan.schedule.fresh) {
      if (cell == '1' && random.uniform(at++) < 0.5) cell = '0';
    }
    plan.schedule.shift = i / 4 % 2 == 0 ? "paced" : "begun";
    plan.schedule.spare_stages = static_cast<int>(i % 3);
    plan.schedule.spread = i % 7 == 0 ? "direct" : "relay";
    plan.schedule.sum = i % 5 == 0 ? "after" : "inside";
    if (n == k && i % 3 == 0) plan.schedule.updater = "first_user";
    std::vector<StageSeconds> stages = random_stages(k, i);
    for (StageSeconds& stage : stages) stage.token = i % 8 == 0 ? 3e-6 : 0.0;
    expect_equal_periods(plan, layers(k), stages);
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
}  // namespace strata::test_ring_period
