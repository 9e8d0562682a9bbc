/// @file
/// What a run records of each type of error.

#include <gtest/gtest.h>

#include <stdexcept>

#include "base/error.hpp"
#include "results/outcome.hpp"

namespace strata::results::test_outcome {
namespace {

TEST(Outcome, EachTypeOfErrorHasItsStatus) {
  EXPECT_EQ(outcome_of(UserError("x")).status, Status::recording_error);
  EXPECT_EQ(outcome_of(LaunchMismatch("x")).status, Status::launcher_mismatch);
  EXPECT_EQ(outcome_of(Unsupported("x")).status, Status::refused);
  EXPECT_EQ(outcome_of(OutOfMemory("x")).status, Status::oom);
  EXPECT_EQ(outcome_of(CommunicationError("x")).status, Status::communication_error);
  EXPECT_EQ(outcome_of(InternalError("x")).status, Status::bug);
  EXPECT_EQ(outcome_of(std::length_error("x")).status, Status::bug);
  EXPECT_EQ(outcome_of(Unsupported("why")).message, "why");
}

}  // namespace
}  // namespace strata::results::test_outcome
