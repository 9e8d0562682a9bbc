/// @file
/// When simulated steps repeat, of made-up step times and of a ring that takes long to come to its period.

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "sim/steady_state.hpp"

namespace strata::test_steady_state {
namespace {

/// Two classes, the second @p late steps behind the first; all steps steady.
SimulationResult with_seconds(const std::vector<double>& seconds, std::size_t late = 0) {
  SimulationResult result;
  for (std::size_t s = 0; s < seconds.size(); ++s) {
    result.steps.push_back({{.step_seconds = seconds[s]}, {.step_seconds = seconds[s < late ? 0 : s - late]}});
  }
  result.steady_step = static_cast<int>(seconds.size()) - 1;
  return result;
}

TEST(SteadyState, StepsRepeatWhenAllClassesHaveTwoPeriodsAlike) {
  EXPECT_EQ(period_of(with_seconds({9, 5, 4, 4, 4}), 1), 1);
  EXPECT_EQ(period_of(with_seconds({9, 5, 4, 4}), 1), 0) << "two alike may be chance";
  EXPECT_EQ(period_of(with_seconds({9, 5, 4, 4, 4}, 1), 1), 0) << "the second class has two alike";
  EXPECT_EQ(period_of(with_seconds({9, 3, 4, 3, 4, 3, 4}), 1), 2);
  EXPECT_EQ(period_of(with_seconds({3, 4, 4, 3, 4, 4, 3, 4, 4}), 1), 3);
  EXPECT_EQ(period_of(with_seconds({9, 8, 7, 6, 5, 4, 3}), 1), 0);
  EXPECT_EQ(period_of(with_seconds({4, 4, 4, 4 + 1.5e-9}), 1), 1) << "a nanosecond is rounding";
  EXPECT_EQ(period_of(with_seconds({4, 4, 4, 4 + 1e-6}), 1), 0);
}

TEST(SteadyState, AClassThatGetsAheadOfTheOthersWillWaitForThemOneDay) {
  SimulationResult result = with_seconds({4, 4, 4, 4, 4});
  for (auto& of_step : result.steps) of_step[1].step_seconds = 3.0;
  EXPECT_EQ(period_of(result, 1), 0);
}

TEST(SteadyState, AllStepsThatAreAskedForAreSteady) {
  const std::vector<double> seconds = {9, 9, 5, 4, 4, 4, 4};
  EXPECT_EQ(period_of(with_seconds(seconds), 3), 1);
  EXPECT_EQ(period_of(with_seconds(seconds), 4), 0) << "the first of four is unlike the one before";
}

TEST(SteadyState, TheLastStepMayBeUnlikeAllOthers) {
  const auto found = [](const std::vector<double>& seconds, int num_steps) {
    SimulationResult result = with_seconds(seconds);
    find_period(result, num_steps);
    return result;
  };
  const SimulationResult quicker = found({9, 4, 4, 4, 3}, 1);
  EXPECT_EQ(quicker.period_steps, 1);
  EXPECT_EQ(quicker.steady_step, 3);
  EXPECT_DOUBLE_EQ(steady_step_seconds(quicker), 4.0);
  EXPECT_EQ(found({9, 4, 4, 4, 4}, 1).steady_step, 4) << "the last that repeats";
  EXPECT_EQ(found({9, 4, 4, 3}, 1).steady_step, 3) << "too few others";
  EXPECT_EQ(found({9, 4, 4, 3}, 1).period_steps, 0);
  EXPECT_EQ(found({9, 4, 4, 4, 3}, 3).period_steps, 0) << "too few for three steady ones";
  EXPECT_EQ(found({9, 5, 4, 4, 4, 3, 3}, 1).period_steps, 0) << "two are unlike";
}

TEST(SteadyState, SecondsAreThoseOfAPeriodOfTheSlowestClass) {
  SimulationResult result = with_seconds({9, 3, 4, 3, 4, 3, 4});
  result.period_steps = period_of(result, 1);
  EXPECT_DOUBLE_EQ(steady_step_seconds(result), 3.5);
  result.period_steps = 0;
  EXPECT_DOUBLE_EQ(steady_step_seconds(result), 4.0) << "no period: the steady step alone";
}

}  // namespace
}  // namespace strata::test_steady_state
