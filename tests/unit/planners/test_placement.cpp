/// @file
/// The order of nodes that packs groups under leaf switches, and the option that asks for it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "base/error.hpp"
#include "planners/states/sharded_plan.hpp"
#include "sharded.hpp"

namespace strata::test_placement {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Groups of @p size neighbours that hang under several leaves.
int num_crossing(const std::vector<int>& order, const std::vector<int>& leaves, int size) {
  int crossing = 0;
  for (std::size_t first = 0; first < order.size(); first += static_cast<std::size_t>(size)) {
    std::set<int> under;
    for (std::size_t i = first; i < first + static_cast<std::size_t>(size); ++i) {
      under.insert(leaves[static_cast<std::size_t>(order[i])]);
    }
    crossing += under.size() > 1 ? 1 : 0;
  }
  return crossing;
}

TEST(LeafFirst, NodesOfALeafStandTogether) {
  EXPECT_THAT(leaf_first_order(std::vector{0, 1, 0, 1}, std::vector{2, 4}), ElementsAre(0, 2, 1, 3));
  EXPECT_THAT(leaf_first_order(std::vector{1, 0, 1, 0}, std::vector{2, 4}), ElementsAre(1, 3, 0, 2));
  EXPECT_THAT(leaf_first_order(std::vector{0, 0, 0, 0}, std::vector{4}), ElementsAre(0, 1, 2, 3));
}

/// Leaves of three: sorted by leaf alone, two of the three pairs of six nodes would cross; whole pairs come first.
TEST(LeafFirst, WhatIsLeftOverMakesMixedGroupsBehindTheOthers) {
  const std::vector<int> leaves = {0, 0, 0, 1, 1, 1};
  const std::vector<int> order = leaf_first_order(leaves, std::vector{2, 6});
  EXPECT_THAT(order, ElementsAre(0, 1, 3, 4, 2, 5));
  EXPECT_EQ(num_crossing(order, leaves, 2), 1);
}

/// As few groups cross as can: a leaf of n nodes holds no more than n/size whole groups.
TEST(LeafFirst, TheSmallestGroupsCrossAsRarelyAsCan) {
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {
    const int size = 2 << (random() % 2);
    const int num_nodes = size * 2 * static_cast<int>(1 + random() % 6);
    std::vector<int> leaves;
    for (int n = 0; n < num_nodes; ++n) leaves.push_back(static_cast<int>(random() % 5));
    const std::vector<int> order = leaf_first_order(leaves, std::vector{size, size * 2, num_nodes});
    std::vector<int> sorted = order;
    std::ranges::sort(sorted);
    for (int n = 0; n < num_nodes; ++n) ASSERT_EQ(sorted[static_cast<std::size_t>(n)], n);
    int whole = 0;
    for (int leaf = 0; leaf < 5; ++leaf) whole += static_cast<int>(std::ranges::count(leaves, leaf)) / size;
    EXPECT_EQ(num_crossing(order, leaves, size), num_nodes / size - whole);
    std::vector<int> block(order.size());
    std::iota(block.begin(), block.end(), 0);
    EXPECT_LE(num_crossing(order, leaves, size), num_crossing(block, leaves, size));
  }
}

TEST(LeafFirst, IsAnOptionOfModesWithGroupsOfSeveralNodes) {
  const ModelGraph graph = build_model({.name = "gpt-nano"});
  for (const char* mode : {"mics", "zeropp", "amsp"}) {
    const Planner& planner = find_planner(mode);
    std::map<std::string, OptionValue> options;
    for (const OptionRow& row : planner.options()) options.emplace(std::string(row.name), row.default_value);
    for (const char* factor : {"p", "g", "os"}) {
      if (options.contains(factor)) options[factor] = std::string("8x2");
    }
    Plan base = asked_on({8, 4}, 1);
    base.strategy = mode;
    PlanRequest request{.graph = graph, .cluster = a800_ib(), .base = base, .options = options};
    request.leaf_of_node = {0, 1, 0, 1};
    EXPECT_EQ(planner.plan(request).mesh.placement, "block") << mode;
    EXPECT_TRUE(planner.plan(request).mesh.node_order.empty()) << mode;
    request.options["placement"] = std::string("leaf-first");
    const Plan plan = planner.plan(request);
    EXPECT_EQ(plan.mesh.placement, "leaf-first") << mode;
    EXPECT_NO_THROW(verify(plan, graph)) << mode;
    EXPECT_EQ(parse_plan(to_text(plan), "plan.toml"), plan) << mode;
    if (mode == std::string_view("amsp")) {
      EXPECT_THAT(plan.mesh.node_order, ElementsAre(0, 2, 1, 3));
    }
    request.leaf_of_node.clear();
    try {
      planner.plan(request);
      FAIL() << mode;
    } catch (const Unsupported& error) {
      EXPECT_THAT(error.what(),
                  HasSubstr(std::string(mode) + " on 4 nodes: placement = leaf-first needs a cluster with "
                                                "leaf switches, and a800-ib has"));
    }
  }
}

}  // namespace
}  // namespace strata::test_placement
