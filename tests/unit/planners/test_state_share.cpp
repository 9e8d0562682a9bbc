/// @file
/// How states are held says the same of other copies.

#include <gtest/gtest.h>

#include "planners/states/factors.hpp"
#include "planners/states/state_share.hpp"

namespace strata::test_state_share {
namespace {

constexpr Factor grids[] = {{1, 1}, {8, 1}, {1, 4}, {2, 4}, {6, 4}, {8, 16}, {3, 6}, {9, 2}, {12, 5}};

TEST(StateShare, IsLegalOfOtherCopiesWhereItWas) {
  for (const Factor& from : grids) {
    for (const Factor& to : grids) {
      for (const StateFactors& state : legal_states(from)) {
        const StateFactors carried = carried_over(state, from, to);
        EXPECT_EQ(broken_rule(carried, to), "")
            << to_string(state) << " of " << to_string(from) << ": " << to_string(carried) << " of " << to_string(to);
        EXPECT_EQ(carried_over(state, from, from), state) << to_string(from);
      }
    }
  }
}

TEST(StateShare, OfAllCopiesAndOfThoseInANodeStaysSo) {
  const Factor one, from{8, 16};
  for (const Factor& to : grids) {
    EXPECT_EQ(carried_over({}, from, to), StateFactors{});
    EXPECT_EQ(carried_over({.p = from, .g = from, .os = from}, from, to), (StateFactors{.p = to, .g = to, .os = to}));
    const Factor in_node = to.in_node == 1 ? to : Factor{to.in_node, 1};
    EXPECT_EQ(carried_over({.p = one, .g = {8, 1}, .os = {8, 1}}, from, to),
              (StateFactors{.p = one, .g = in_node, .os = in_node}));
  }
  EXPECT_EQ(carried_over({.p = {4, 1}, .g = {4, 1}, .os = {8, 4}}, from, {6, 2}),
            (StateFactors{.p = {2, 1}, .g = {2, 1}, .os = {6, 2}}));
}

}  // namespace
}  // namespace strata::test_state_share
