/// @file
/// Steps that begin and end unlike the rest, as small Programs whose steps overlap say it.

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "ir/program/repetition.hpp"
#include "support/overlapping_programs.hpp"

namespace strata::test_fill_and_drain {
namespace {

struct Ends {
  std::int64_t fill, drain;
};

/// What is left to the next repetition makes the first step go without it and the last end alone; who waits for the
/// step before does not in the first.
TEST(FillAndDrain, FollowsFromWhatIsLeftToLaterStepsAndWaitedFor) {
  const std::map<std::string, Ends> expected = {
      {"late_update", {1, 1}},    {"delayed_gradient", {1, 1}}, {"two_versions", {0, 0}}, {"late_message", {1, 1}},
      {"late_broadcast", {1, 1}}, {"there_and_back", {2, 2}},   {"ring", {1, 1}},
  };
  std::size_t num_asked = 0;
  for (const test::OverlapCase& one : test::overlap_cases()) {
    const auto found = expected.find(one.name);
    if (found == expected.end()) continue;
    FillAndDrain most;
    for (const int rank : {0, 1}) {
      const FillAndDrain of_rank = fill_and_drain(one.program(rank));
      most.fill = std::max(most.fill, of_rank.fill);
      most.drain = std::max(most.drain, of_rank.drain);
    }
    EXPECT_EQ(most.fill, found->second.fill) << one.name;
    EXPECT_EQ(most.drain, found->second.drain) << one.name;
    ++num_asked;
  }
  EXPECT_EQ(num_asked, expected.size());
}

/// A Program whose repetitions are alone has waits with a lag in its join only.
TEST(FillAndDrain, AStepThatMeetsNoOtherNeitherFillsNorDrains) {
  Program alone = test::late_update(0);
  for (Instruction& in : alone.body) in.step = 0;
  alone.join = true;
  EXPECT_EQ(fill_and_drain(alone).fill, 0);
  EXPECT_EQ(fill_and_drain(alone).drain, 0);
  alone.join = false;
  EXPECT_EQ(fill_and_drain(alone).fill, 1) << "its waits for the repetition before";
}

}  // namespace
}  // namespace strata::test_fill_and_drain
