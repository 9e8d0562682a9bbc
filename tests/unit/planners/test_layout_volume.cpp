/// @file
/// Elements that layouts move: the counts of AutoDDL's figure 3, asymptotes of a square product, exchanges between
/// homes against a count element by element.

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <tuple>

#include "planners/layouts/candidates.hpp"
#include "planners/layouts/volume.hpp"
#include "planners/states/factors.hpp"

namespace strata::test_layout_volume {
namespace {

constexpr double giga = 1024.0 * 1024.0 * 1024.0;

Layout flat(int p0, int p1, int p2) { return {.p0 = {1, p0}, .p1 = {1, p1}, .p2 = {1, p2}}; }

/// 1024 samples of 1024 tokens, d = 8192, 64 nodes: AutoDDL's figure 3.
constexpr Factor nodes64{1, 64};
constexpr double tokens = 1024.0 * 1024.0, d = 8192.0;
double attention_forward(const Layout& qkv, const Layout& projection) {
  const MatmulSize first{.m = tokens, .k = d, .n = 3 * d}, second{.m = tokens, .k = d, .n = d};
  return forward_volume(first, qkv).total() + forward_volume(second, projection).total() +
         exchange_volume(tokens * d, qkv, projection, nodes64, false);
}

TEST(LayoutVolume, Figure3OfAutoDdl) {
  // Megatron on 4 x 16: 3.75 · 2^30 elements; AutoDDL's strategy: 2.0 · 2^30.
  EXPECT_EQ(attention_forward(flat(4, 16, 1), flat(4, 1, 16)), 3.75 * giga);
  EXPECT_EQ(attention_forward(flat(4, 8, 2), flat(4, 4, 4)), 2.0 * giga);

  double best = INFINITY;
  for (const Layout& qkv : all_layouts(nodes64)) {
    for (const Layout& projection : all_layouts(nodes64)) {
      if (qkv.p0.total() > 4 || projection.p0.total() > 4) continue;
      best = std::min(best, attention_forward(qkv, projection));
    }
  }
  EXPECT_EQ(best, 2.0 * giga);
}

TEST(LayoutVolume, BackwardIsForwardTurnedAroundAndDataNeedsNone) {
  const MatmulSize size{.m = 96, .k = 48, .n = 24, .weights = 48 * 24};
  const Layout layout = flat(2, 3, 4);
  const Volume forward = forward_volume(size, layout), backward = backward_volume(size, layout);
  EXPECT_DOUBLE_EQ(forward.all_gather, 2.0 / 3 * 96 * 48 / (2 * 4));
  EXPECT_DOUBLE_EQ(forward.reduce_scatter, 3.0 / 4 * 96 * 24 / (2 * 3));
  EXPECT_EQ(backward.all_gather, forward.reduce_scatter);
  EXPECT_EQ(backward.reduce_scatter, forward.all_gather);
  EXPECT_DOUBLE_EQ(weight_gradient_volume(size, layout).all_reduce, 2 * 1.0 / 2 * 48 * 24 / (3 * 4));
  EXPECT_EQ(forward_volume(size, layout, false).all_gather, 0.0);
  EXPECT_EQ(backward_volume(size, layout, false).reduce_scatter, 0.0);
  EXPECT_EQ(weight_gradient_volume(size, flat(1, 6, 4)).total(), 0.0);
}

/// Least squares through logarithms.
double slope(const std::map<int, double>& values) {
  double x = 0, y = 0, xx = 0, xy = 0;
  for (const auto& [ranks, value] : values) {
    const double lx = std::log(ranks), ly = std::log(value);
    x += lx, y += ly, xx += lx * lx, xy += lx * ly;
  }
  const auto n = static_cast<double>(values.size());
  return (n * xy - x * y) / (n * xx - x * x);
}

TEST(LayoutVolume, SquareProductsFallByTwoThirdsAndMegatronByOneHalf) {
  constexpr double n = 65536.0;
  const MatmulSize size{.m = n, .k = n, .n = n, .weights = n * n};
  // Table 2 charges (q-1)/q of what a collective makes: the asymptote is that of what it makes.
  const auto moved = [&](const Layout& layout) {
    return forward_volume(size, layout).total() + backward_volume(size, layout).total() +
           weight_gradient_volume(size, layout).total();
  };
  const auto made = [&](const Layout& l) {
    return 2.0 * n * n * (l.p0.total() + l.p1.total() + l.p2.total()) / (l.p0.total() * l.p1.total() * l.p2.total());
  };
  const auto held = [&](const Layout& l) { return made(l) / 2.0; };  // weights p0-fold, input p1-fold, output p2-fold
  std::map<int, double> cube_made, cube_held, megatron_made, megatron_held;
  for (const int ranks : {8, 64, 512, 4096}) {
    const Layout* best = nullptr;
    const Layout* best_of_two = nullptr;
    const std::vector<Layout> all = all_layouts({1, ranks});
    for (const Layout& layout : all) {
      if (best == nullptr || moved(layout) < moved(*best)) best = &layout;
      if (layout.p2.total() > 1) continue;
      if (best_of_two == nullptr || moved(layout) < moved(*best_of_two)) best_of_two = &layout;
    }
    const int side = static_cast<int>(std::lround(std::cbrt(ranks)));
    EXPECT_EQ(*best, flat(side, side, side));
    EXPECT_DOUBLE_EQ(moved(*best), 6.0 * n * n * (side - 1) / ranks);
    cube_made[ranks] = made(*best);
    cube_held[ranks] = held(*best);
    megatron_made[ranks] = made(*best_of_two);
    megatron_held[ranks] = held(*best_of_two);
  }
  EXPECT_NEAR(slope(cube_made), -2.0 / 3, 1e-9);
  EXPECT_NEAR(slope(cube_held), -2.0 / 3, 1e-9);
  EXPECT_NEAR(slope(megatron_made), -0.5, 0.04);
  EXPECT_NEAR(slope(megatron_held), -0.5, 0.04);
}

TEST(LayoutVolume, AllLayoutsOfAGrid) {
  EXPECT_EQ(all_layouts({1, 64}).size(), 28U);
  EXPECT_EQ(all_layouts({1, 4096}).size(), 91U);
  EXPECT_EQ(all_layouts({4, 2}).size(), 6U * 3);
  for (const Layout& layout : all_layouts({4, 6})) {
    EXPECT_EQ(layout.p0.in_node * layout.p1.in_node * layout.p2.in_node, 4);
    EXPECT_EQ(layout.p0.nodes * layout.p1.nodes * layout.p2.nodes, 6);
  }
}

TEST(LayoutVolume, ExchangesWhereOneDividesTheOther) {
  EXPECT_EQ(exchange_between({2, 2}, {2, 2}).moved_share, 0.0);
  const Exchange four = exchange_between({1, 2}, {1, 8});
  EXPECT_EQ(four.moved_share, 0.75);
  EXPECT_EQ(four.group, (Factor{1, 4}));
  EXPECT_EQ(exchange_between({1, 8}, {1, 2}).moved_share, 0.75);
  // Inside a node where nodes cut rows as before.
  EXPECT_EQ(exchange_between({4, 2}, {1, 2}).group, (Factor{4, 1}));
}

TEST(LayoutVolume, ExchangesWhereNeitherDividesAreOverTheFactorsTheyDoNotShare) {
  EXPECT_EQ(exchange_between({1, 4}, {1, 6}).group, (Factor{1, 6}));  // 2 against 3
  EXPECT_DOUBLE_EQ(exchange_between({1, 2}, {1, 3}).moved_share, 5.0 / 6.0);
  // Rows over ranks in a node become rows over nodes.
  EXPECT_EQ(exchange_between({4, 1}, {1, 4}).group, (Factor{4, 4}));
}

TEST(LayoutVolume, UnaryOperatorsLetRowsBeScatteredAndGathered) {
  const Layout from = flat(2, 4, 2), to = flat(1, 4, 4);
  EXPECT_TRUE(needs_exchange(from, to, false));
  EXPECT_FALSE(needs_exchange(from, to, true));              // p1 = p2' = 4
  EXPECT_TRUE(needs_exchange(from, flat(1, 8, 2), true));    // p2' = 2
  EXPECT_FALSE(needs_exchange(from, flat(2, 2, 4), false));  // rows are cut alike
  EXPECT_EQ(exchange_volume(1600.0, from, to, {1, 16}, true), 0.0);
  EXPECT_EQ(exchange_volume(1600.0, from, to, {1, 16}, false), 50.0);
}

}  // namespace
}  // namespace strata::test_layout_volume
