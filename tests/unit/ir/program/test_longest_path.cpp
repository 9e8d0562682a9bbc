/// @file
/// The longest path of small hand-made step lists.

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "ir/program/longest_path.hpp"

namespace strata {
namespace {

/// compute: a b c; communication: x (waits a); c waits x.
Program three_and_one() {
  Program program{.streams = {"compute", "communication"}};
  program.body = {{.stream = 0, .name = "a"},
                  {.stream = 1, .name = "x", .waits = {{0, 0}}},
                  {.stream = 0, .name = "b"},
                  {.stream = 0, .name = "c", .waits = {{1, 0}}}};
  return program;
}

TEST(LongestPath, HiddenCommunicationCostsNothing) {
  EXPECT_DOUBLE_EQ(longest_path_seconds(three_and_one(), std::vector{1.0, 2.0, 3.0, 4.0}), 8.0);
}

TEST(LongestPath, ExposedCommunicationDelaysWhoWaits) {
  EXPECT_DOUBLE_EQ(longest_path_seconds(three_and_one(), std::vector{1.0, 5.0, 3.0, 4.0}), 10.0);
}

TEST(LongestPath, ALaggedWaitConcernsAnEarlierRepetition) {
  Program program = three_and_one();
  program.body[3].waits = {{1, 1}};
  EXPECT_DOUBLE_EQ(longest_path_seconds(program, std::vector{1.0, 50.0, 3.0, 4.0}), 51.0);
}

TEST(LongestPath, ItWantsOneDurationAnInstruction) {
  EXPECT_THROW(longest_path_seconds(three_and_one(), std::vector{1.0}), InternalError);
}

}  // namespace
}  // namespace strata
