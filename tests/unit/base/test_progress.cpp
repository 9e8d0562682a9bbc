/// @file
/// Lengths of time, and how far something is, for people.

#include <gtest/gtest.h>

#include "base/duration.hpp"
#include "base/progress.hpp"

namespace strata::test_progress {
namespace {

TEST(Duration, HasTheUnitThatFits) {
  EXPECT_EQ(duration_in_words(0.0042), "0.004 s");
  EXPECT_EQ(duration_in_words(90.0), "90.0 s");
  EXPECT_EQ(duration_in_words(120.0), "2.0 min");
  EXPECT_EQ(duration_in_words(7200.0), "2.0 h");
}

TEST(Progress, SaysDoneRateAndTimeLeft) {
  EXPECT_EQ(progress_in_words("planned", 120, 9600, 4.0), "planned 120 of 9600 points, 30 a second, 5.3 min left");
  EXPECT_EQ(progress_in_words("planned", 3, 4, 4.0), "planned 3 of 4 points, 0.75 a second, 1.3 s left");
  EXPECT_EQ(progress_in_words("simulated", 9600, 9600, 4.0),
            "simulated 9600 of 9600 points, 2400 a second, 0.000 s left");
}

}  // namespace
}  // namespace strata::test_progress
