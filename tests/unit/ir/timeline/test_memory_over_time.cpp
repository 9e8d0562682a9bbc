/// @file
/// What the arena holds from moment to moment, of one step and of steps that overlap.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <vector>

#include "ir/program/program.hpp"
#include "ir/timeline/memory_over_time.hpp"

namespace strata::test_memory_over_time {
namespace {

MemorySample sample(std::int64_t time_ns, std::int64_t activation, std::int64_t workspace) {
  MemorySample s{.rank = 3, .time_ns = time_ns};
  s.bytes[static_cast<int>(Category::parameter)] = 40;
  s.bytes[static_cast<int>(Category::activation)] = activation;
  s.bytes[static_cast<int>(Category::workspace)] = workspace;
  return s;
}

/// A parameter of 40 bytes beside @p temporaries.
Program program_with(std::vector<Buffer> temporaries) {
  Program program;
  program.rank = 3;
  program.buffers = {{.name = "w", .num_elements = 10, .category = Category::parameter, .persistent = true}};
  program.buffers.insert(program.buffers.end(), temporaries.begin(), temporaries.end());
  return program;
}

TEST(MemoryOverTime, IsTheArenasContent) {
  Program program = program_with({{.name = "x", .num_elements = 100},
                                  {.name = "y", .num_elements = 50},
                                  {.name = "t", .num_elements = 5, .category = Category::workspace}});
  program.body.resize(3);
  program.body[0].allocs = {1};
  program.body[1].allocs = {2, 3};
  program.body[1].frees = {1, 3};
  program.body[2].frees = {2};
  const RecordedStep step{.step = 7,
                          .begin_ns = 1000,
                          .events = {{.rank = 3, .step = 7, .instruction = 0, .begin_ns = 5, .end_ns = 10},
                                     {.rank = 3, .step = 7, .instruction = 1, .begin_ns = 10, .end_ns = 20},
                                     {.rank = 3, .step = 7, .instruction = 2, .begin_ns = 20, .end_ns = 40}}};
  const std::vector<MemorySample> samples = memory_over_time(program, {&step, 1}, {7, 7});
  EXPECT_EQ(samples, (std::vector<MemorySample>{sample(1000, 0, 0), sample(1005, 400, 0), sample(1010, 600, 20),
                                                sample(1020, 200, 0), sample(1040, 0, 0)}));
  std::int64_t largest = 0;
  for (const MemorySample& s : samples) {
    largest = std::max(largest, std::accumulate(std::begin(s.bytes), std::end(s.bytes), std::int64_t{0}));
  }
  EXPECT_EQ(largest, memory_peak(program).total_bytes);
  EXPECT_TRUE(memory_over_time(program, {&step, 1}, {8, 9}).empty()) << "no such step was recorded";
}

/// A buffer that is born in a step, read at the end of the next repetition and dead then; a scratch beside it. A step's
/// part of what lies in the arena while another one is counted is there too, but not what is there outside of it.
TEST(MemoryOverTime, WhereStepsOverlapAllThatAreUnderWayCount) {
  Program program = program_with(
      {{.name = "x", .num_elements = 100}, {.name = "t", .num_elements = 5, .category = Category::workspace}});
  program.join = false;
  program.body.resize(2);
  program.body[0] = {.step = -1, .allocs = {2}, .frees = {1, 2}};
  program.body[1] = {.step = 0, .allocs = {1}};
  ASSERT_EQ(depth(program), 1);
  ASSERT_EQ(steps_beside(program), 2);
  // Step s begins at 100 s with its instruction #1, 30 long; its #0 follows 10 later than the next step begins, which
  // is before that step's own #1 does: 100 (s + 1) + 10 to 100 (s + 1) + 25, and #1 from 100 s + 40 on.
  std::vector<RecordedStep> steps;
  for (std::int64_t s = 0; s < 5; ++s) {
    steps.push_back({.step = s,
                     .begin_ns = 100 * s,
                     .events = {{.rank = 3, .step = s, .instruction = 1, .begin_ns = 40, .end_ns = 70},
                                {.rank = 3, .step = s, .instruction = 0, .begin_ns = 110, .end_ns = 125}}});
  }
  EXPECT_EQ(memory_over_time(program, steps, {2, 2}),
            (std::vector<MemorySample>{sample(200, 400, 0), sample(210, 400, 20), sample(225, 0, 0),
                                       sample(240, 400, 0), sample(310, 400, 20), sample(325, 0, 0)}))
      << "the first of them from what step 1 has left";
}

}  // namespace
}  // namespace strata::test_memory_over_time
