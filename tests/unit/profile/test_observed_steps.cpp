/// @file
/// What a profile makes of the events of steps.

#include <gmock/gmock.h>

#include <vector>

#include "profile/observed_steps.hpp"

namespace strata::profile::test_observed_steps {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;

/// Two fills of 8 elements, one of 4, and an all-reduce.
Program program() {
  Program program{.num_ranks = 2, .streams = {"compute", "communication"}};
  program.groups = {{.name = "all", .ranks = {0, 1}}};
  program.buffers = {{.name = "x", .num_elements = 8}, {.name = "y", .num_elements = 4}};
  const Operand x{.buffer = 0, .num_elements = 8};
  const Operand y{.buffer = 1, .num_elements = 4};
  const Instruction fill{.kernel = Kernel::fill, .name = "fill", .outputs = {x}, .attributes = {{"elements", 8}}};
  Instruction small = fill;
  small.outputs = {y};
  small.attributes.set("elements", 4);
  program.body = {fill, fill, small, {.group = 0, .stream = 1, .name = "sum", .inputs = {x}, .outputs = {x}}};
  return program;
}

std::vector<TimelineEvent> events(const std::vector<std::pair<std::int64_t, std::int64_t>>& times) {
  std::vector<TimelineEvent> all(times.size());
  for (std::size_t i = 0; i < times.size(); ++i) {
    all[i].instruction = static_cast<int>(i);
    all[i].begin_ns = times[i].first;
    all[i].end_ns = times[i].second;
  }
  return all;
}

TEST(ObservedSteps, AKernelTakesTheMeanOfItsInstancesAndTheMedianOfSteps) {
  const Program p = program();
  ObservedSteps steps;
  steps.add(p, events({{0, 1000}, {1000, 4000}, {4000, 4000}, {2000, 6000}}),
            {.step_seconds = 10e-6, .compute_seconds = 4e-6, .communication_seconds = 4e-6, .exposed_seconds = 2e-6});
  EXPECT_THAT(steps.both_seconds, ElementsAre(DoubleEq(2e-6)));
  EXPECT_THAT(steps.other_seconds, ElementsAre(DoubleEq(4e-6)));
  steps.add(p, events({{0, 1000}, {1000, 2000}, {2000, 2500}, {9000, 9000}}), {});
  steps.add(p, events({{0, 9000}, {9000, 18000}, {18000, 18300}, {20000, 30000}}), {});
  const std::vector<KernelTime> rows = kernel_times(steps, 2);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].kind, rows[1].kind);
  EXPECT_LT(rows[0].sizes, rows[1].sizes);
  EXPECT_DOUBLE_EQ(rows[0].seconds, 300e-9);  // of 1 ns, the clock's resolution, 500 and 300
  EXPECT_DOUBLE_EQ(rows[1].seconds, 2000e-9);
  EXPECT_EQ(rows[1].ranks_on_node, 2);
  EXPECT_EQ(rows[1].num_measured, 3);
}

TEST(ObservedSteps, OfSeveralPointsStandTogether) {
  const Program p = program();
  ObservedSteps one;
  one.add(p, events({{0, 1000}, {1000, 2000}, {2000, 2500}, {0, 0}}), {.step_seconds = 1.0});
  ObservedSteps both;
  both.add(one);
  both.add(one);
  EXPECT_THAT(both.other_seconds, ElementsAre(1.0, 1.0));
  EXPECT_EQ(kernel_times(both, 1).front().num_measured, 2);
}

TEST(ObservedSteps, ShapesOfSomeRanksAreAveragedOverThoseRanks) {
  const KernelTime wide{.kind = "fill f32", .sizes = {8}, .work = 32, .ranks_on_node = 2, .seconds = 1e-6};
  KernelTime slower = wide;
  slower.seconds = 3e-6;
  KernelTime other = wide;
  other.sizes = {4};
  const std::vector<KernelTime> rows = mean_by_shape(std::vector{wide, other, slower});
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0], other);
  EXPECT_DOUBLE_EQ(rows[1].seconds, 2e-6);
}

TEST(Slowdown, IsOfTheTimeInWhichBothWereAtWork) {
  // 4 s alone; 6 s with 4 of them beside a transfer, at half the speed.
  EXPECT_DOUBLE_EQ(slowdown(4.0, 6.0, 4.0), 2.0);
  EXPECT_DOUBLE_EQ(slowdown(4.0, 4.0, 4.0), 1.0);
  EXPECT_DOUBLE_EQ(slowdown(4.0, 3.0, 4.0), 1.0);    // noise
  EXPECT_DOUBLE_EQ(slowdown(4.0, 90.0, 4.0), 10.0);  // at most
  EXPECT_DOUBLE_EQ(slowdown(4.0, 6.0, 0.0), 1.0);
}

}  // namespace
}  // namespace strata::profile::test_observed_steps
