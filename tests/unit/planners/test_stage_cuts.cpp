/// @file
/// The cut of a chain into stages that the dynamic program finds is the best of all that there are.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <vector>

#include "planners/pipelines/stage_cuts.hpp"

namespace strata::test_stage_cuts {
namespace {

using testing::ElementsAre;

/// Of all cuts, stage by stage.
double fewest_seconds(const StageChain& chain, std::vector<int>& begins) {
  if (static_cast<int>(begins.size()) == chain.num_stages()) return step_seconds(chain, begins);
  double fewest = std::numeric_limits<double>::infinity();
  for (int next = begins.back() + 1; next < chain.num_pieces(); ++next) {
    begins.push_back(next);
    fewest = std::min(fewest, fewest_seconds(chain, begins));
    begins.pop_back();
  }
  return fewest;
}

/// Pieces of which few are much larger than the others, and messages that matter in some.
StageChain random_chain(std::mt19937& generator) {
  const auto below = [&](int most) { return static_cast<int>(generator() % static_cast<unsigned>(most)); };
  const int pieces = 1 + below(11), stages = 1 + below(std::min(pieces, 6));
  const double largest_message = below(3);
  StageChain chain{.micro_batches = 1 + below(16)};
  for (int p = 0; p < pieces; ++p) chain.seconds.push_back((1 + below(8)) * (below(5) == 0 ? 5.0 : 1.0));
  for (int s = 0; s < stages; ++s) {
    std::vector<double>& of_stage = chain.messages.emplace_back();
    for (int p = 0; p < pieces; ++p) of_stage.push_back(largest_message * below(16) / 4.0);
  }
  return chain;
}

TEST(StageCuts, AreTheBestOfAll) {
  std::mt19937 generator(5);
  int unequal = 0, bound_by_messages = 0;
  for (int round = 0; round < 800; ++round) {
    const StageChain chain = random_chain(generator);
    const std::vector<int> found = fastest_cut(chain);
    ASSERT_EQ(static_cast<int>(found.size()), chain.num_stages());
    ASSERT_EQ(found.front(), 0);
    std::vector<int> begins = {0};
    // Sums of quarters are exact.
    ASSERT_EQ(step_seconds(chain, found), fewest_seconds(chain, begins)) << "round " << round;
    StageChain without_messages = chain;
    for (auto& of_stage : without_messages.messages) of_stage.assign(of_stage.size(), 0.0);
    if (step_seconds(chain, fastest_cut(without_messages)) > step_seconds(chain, found)) ++bound_by_messages;
    std::vector<int> equal;
    for (int s = 0; s < chain.num_stages(); ++s) equal.push_back(s * chain.num_pieces() / chain.num_stages());
    if (step_seconds(chain, equal) > step_seconds(chain, found)) ++unequal;
  }
  // The instances are worth something.
  EXPECT_GT(unequal, 300);
  EXPECT_GT(bound_by_messages, 50);
}

TEST(StageCuts, StepsAreTheFirstMicroBatchAndTheOthersBehindTheSlowestStage) {
  const StageChain chain{
      .seconds = {1, 2, 3, 4}, .messages = {{9, 9, 9, 9}, {9, 0.5, 0.25, 0.125}}, .micro_batches = 5};
  EXPECT_EQ(step_seconds(chain, std::vector{0, 2}), 10 + 0.25 + 4 * 7);
  EXPECT_EQ(step_seconds(chain, std::vector{0, 3}), 10 + 0.125 + 4 * 6);
  EXPECT_THAT(fastest_cut(chain), ElementsAre(0, 3));
}

/// With one micro-batch no stage waits for the slowest: messages alone count.
TEST(StageCuts, OneMicroBatchIsCutWhereMessagesAreSmallest) {
  const StageChain chain{.seconds = {1, 1, 1, 7}, .messages = {{0, 0, 0, 0}, {0, 2, 1, 3}}, .micro_batches = 1};
  EXPECT_THAT(fastest_cut(chain), ElementsAre(0, 2));
}

}  // namespace
}  // namespace strata::test_stage_cuts
