/// @file
/// Lengths of unions and of what two unions have in common, and the middle of measured values.

#include <gtest/gtest.h>

#include "base/intervals.hpp"
#include "base/median.hpp"

namespace strata::test_intervals {
namespace {

TEST(Intervals, WhatSeveralCoverCountsOnce) {
  EXPECT_EQ(union_ns({}), 0);
  EXPECT_EQ(union_ns({{5, 9}}), 4);
  EXPECT_EQ(union_ns({{20, 30}, {0, 10}, {5, 12}, {22, 25}}), 22);
  EXPECT_EQ(union_ns({{-10, -5}, {-7, 2}}), 12);
}

TEST(Intervals, OfTwoUnionsWhatBothCover) {
  EXPECT_EQ(common_ns({}, {{0, 10}}), 0);
  EXPECT_EQ(common_ns({{0, 10}}, {{10, 20}}), 0);
  EXPECT_EQ(common_ns({{0, 10}, {20, 30}}, {{5, 22}, {8, 24}, {29, 40}}), 5 + 4 + 1);
  EXPECT_EQ(common_ns({{0, 10}, {5, 15}}, {{0, 20}}), 15);  // kernels on two streams
}

TEST(Median, IsBetweenTheTwoMiddleOnesOfAnEvenNumber) {
  EXPECT_EQ(median({3.0}), 3.0);
  EXPECT_EQ(median({9.0, 1.0, 2.0}), 2.0);
  EXPECT_EQ(median({9.0, 1.0, 2.0, 4.0}), 3.0);
}

}  // namespace
}  // namespace strata::test_intervals
