/// @file
/// How far `auto` believes what few parts of a step say of it.

#include <gtest/gtest.h>

#include "planners/joint/by_few_parts.hpp"

namespace strata::test_by_few_parts {
namespace {

/// A move is believed as far as what it is a move of was told.
TEST(ByFewParts, AreBelievedWhereTheySaidAllOfWhatAPlanIsAMoveOf) {
  EXPECT_LT(uncertainty_by_few_parts(2.0, 2.0), 1e-4);
  EXPECT_LT(uncertainty_by_few_parts(2.0, 2.0 * (1.0 + 1e-8)), 1e-4);
  for (const double off : {1e-5, -1e-5, 1e-2, -1e-2}) {
    EXPECT_GE(uncertainty_by_few_parts(2.0, 2.0 * (1.0 + off)), 1e-3) << off;
  }
}

}  // namespace
}  // namespace strata::test_by_few_parts
