/// @file
/// The formula of Oases' planner against what it stands for: two in-order streams, one that computes and one that
/// communicates, on which sub-batches take turns.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "planners/oases/chain_seconds.hpp"
#include "support/random_chains.hpp"

namespace strata::test_chain_seconds {
namespace {

/// When a pass ends whose instructions begin as soon as their stream is free and what they read is there: computes of a
/// node by sub-batch, then the next node's; each sum as soon as its compute has ended; a gather behind the sums of all
/// sub-batches, as the addition that it waits for is emitted there.
double end_of_forward(const Chain& chain, const std::vector<int>& choices) {
  const auto sub_batches = static_cast<std::size_t>(chain.sub_batches);
  std::vector<double> arrived(sub_batches, 0.0);  // what a sub-batch's next compute reads
  double compute_free = 0.0, link_free = 0.0;
  for (std::size_t i = 0; i < chain.size(); ++i) {
    const PassSeconds& node = chain.nodes[i][static_cast<std::size_t>(choices[i])].forward;
    for (double& there : arrived) {
      compute_free = std::max(compute_free, there) + node.compute;
      link_free = std::max(link_free, compute_free) + node.communication;
      there = link_free;
    }
    if (i + 1 == chain.size()) break;
    const double gather = chain.gather(i, choices[i], choices[i + 1]).forward;
    if (gather == 0.0) continue;
    for (double& there : arrived) there = link_free += gather;
  }
  return std::max(compute_free, link_free);
}

std::vector<int> random_choices(std::mt19937& generator, const Chain& chain) {
  std::vector<int> choices;
  for (const auto& node : chain.nodes) {
    choices.push_back(std::uniform_int_distribution<>(0, static_cast<int>(node.size()) - 1)(generator));
  }
  return choices;
}

TEST(ChainSeconds, OfOneAndTwoSubBatchesAreThoseOfTwoStreams) {
  std::mt19937 generator(1);
  for (int round = 0; round < 20'000; ++round) {
    Chain chain = random_chain(generator, 1 + round % 9, 4);
    chain.sub_batches = 1 + round % 2;
    chain.reshard = Reshard::pipelined;
    const std::vector<int> choices = random_choices(generator, chain);
    const double streams = end_of_forward(chain, choices);
    ASSERT_NEAR(forward_seconds(chain, choices), streams, 1e-12 * streams) << round;
    chain.reshard = Reshard::blocking;
    ASSERT_GE(forward_seconds(chain, choices), streams * (1.0 - 1e-12)) << round;
  }
}

TEST(ChainSeconds, OfMoreSubBatchesAreNeverFewer) {
  std::mt19937 generator(2);
  for (int round = 0; round < 5'000; ++round) {
    Chain chain = random_chain(generator, 1 + round % 9, 4);
    chain.sub_batches = 3 + round % 2;
    const std::vector<int> choices = random_choices(generator, chain);
    ASSERT_GE(forward_seconds(chain, choices), end_of_forward(chain, choices) * (1.0 - 1e-12)) << round;
  }
}

/// Equation 3 with numbers that were put in by hand: K = 3, p = 2, 1, 3 and c = 1, 4, 2.
TEST(ChainSeconds, AreThoseOfEquationThree) {
  Chain chain;
  const double p[] = {2.0, 1.0, 3.0}, c[] = {1.0, 4.0, 2.0};
  for (int i = 0; i < 3; ++i) chain.nodes.push_back({{.forward = {p[i], c[i]}, .backward = {p[i], c[i]}}});
  chain.gathers = {{{}}, {{}}};
  const std::vector<int> choices{0, 0, 0};
  // p1; then pairs under each other: p1 c1, p2 c1, p2 c2, p3 c2, p3 c3; then c3.
  EXPECT_EQ(forward_seconds(chain, choices), 2.0 + 2.0 + 1.0 + 4.0 + 4.0 + 3.0 + 2.0);
  // The same from the other end: p3; p3 c3, p2 c3, p2 c2, p1 c2, p1 c1; c1.
  EXPECT_EQ(chain_seconds(chain, choices), 18.0 + 3.0 + 3.0 + 2.0 + 4.0 + 4.0 + 2.0 + 1.0);
}

/// Equation 4: a gather g of each sub-batch between equal numbers p = 3, c = 2 costs both gathers and what they part.
TEST(ChainSeconds, BlockingEdgesAreThoseOfEquationFour) {
  Chain chain;
  const ChainChoice choice{.forward = {3.0, 2.0}, .backward = {3.0, 2.0}};
  chain.nodes = {{choice, choice}, {choice, choice}};
  chain.gathers = {{{}, {.forward = 0.5}, {.backward = 0.5}, {}}};
  const auto seconds = [&](int a, int b) { return chain_seconds(chain, std::vector<int>{a, b}); };
  const double overlapped = seconds(0, 0);
  EXPECT_EQ(seconds(1, 1), overlapped);
  chain.reshard = Reshard::blocking;
  EXPECT_EQ(seconds(0, 1), overlapped + 2 * 0.5 + 2.0);  // g + min(c, p)
  EXPECT_EQ(seconds(1, 0), overlapped + 2 * 0.5 + 2.0);
  chain.reshard = Reshard::pipelined;
  EXPECT_EQ(seconds(0, 1), overlapped + 0.5 + 2.0);  // the second gather runs under the first sub-batch
}

}  // namespace
}  // namespace strata::test_chain_seconds
