/// @file
/// The orders of passes: as the papers draw them, and what follows from them.

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/error.hpp"
#include "lower/schedule.hpp"

namespace strata {
namespace {

/// "F0 F1 B0 …"
std::string text(const std::vector<StagePass>& order) {
  std::string result;
  for (const StagePass& pass : order) {
    result += fmt::format("{}{}{}", result.empty() ? "" : " ", pass.backward ? 'B' : 'F', pass.micro_batch);
  }
  return result;
}

constexpr ScheduleKind one_f_one_b = ScheduleKind::one_forward_one_backward;

TEST(Schedule, AsThePapersDrawThem) {
  EXPECT_EQ(text(pass_order(ScheduleKind::gpipe, 4, 2, 3)), "F0 F1 F2 B2 B1 B0");
  // PipeDream-Flush, four stages.
  EXPECT_EQ(text(pass_order(one_f_one_b, 4, 0, 5)), "F0 F1 F2 F3 B0 F4 B1 B2 B3 B4");
  EXPECT_EQ(text(pass_order(one_f_one_b, 4, 1, 5)), "F0 F1 F2 B0 F3 B1 F4 B2 B3 B4");
  EXPECT_EQ(text(pass_order(one_f_one_b, 4, 3, 5)), "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4");
  EXPECT_EQ(text(pass_order(one_f_one_b, 4, 0, 2)), "F0 F1 B0 B1");  // fewer micro-batches than stages
  EXPECT_EQ(text(pass_order(ScheduleKind::simultaneous, 1, 0, 2)), "F0 B0 F1 B1");
}

TEST(Schedule, EveryMicroBatchPassesOnceEachWayAndFewAreInFlight) {
  for (int stages = 1; stages <= 6; ++stages) {
    for (int stage = 0; stage < stages; ++stage) {
      for (int micro_batches = 1; micro_batches <= 9; ++micro_batches) {
        for (const ScheduleKind kind : {ScheduleKind::gpipe, one_f_one_b}) {
          const std::vector<StagePass> order = pass_order(kind, stages, stage, micro_batches);
          std::vector<int> state(static_cast<std::size_t>(micro_batches), 0);
          int in_flight = 0;
          int most = 0;
          int next_forward = 0;
          for (const StagePass& pass : order) {
            int& s = state[static_cast<std::size_t>(pass.micro_batch)];
            EXPECT_EQ(s++, pass.backward ? 1 : 0);
            in_flight += pass.backward ? -1 : 1;
            most = std::max(most, in_flight);
            if (!pass.backward) {
              EXPECT_EQ(pass.micro_batch, next_forward++);
            }
          }
          EXPECT_EQ(std::ranges::count(state, 2), micro_batches);
          EXPECT_EQ(most, kind == ScheduleKind::gpipe ? micro_batches : std::min(micro_batches, stages - stage));
        }
      }
    }
  }
}

TEST(Schedule, WhatHasNoOrderOfPassesIsAMistake) {
  EXPECT_THROW(pass_order(ScheduleKind::cyclic, 2, 0, 2), InternalError);
  EXPECT_THROW(pass_order(ScheduleKind::two_buffered_weights, 2, 0, 2), InternalError);
}

}  // namespace
}  // namespace strata
