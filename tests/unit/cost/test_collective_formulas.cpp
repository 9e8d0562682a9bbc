/// @file
/// Collectives against their closed forms.

#include <gtest/gtest.h>

#include "cost/collective_formulas.hpp"
#include "cost/fit.hpp"
#include "cost/group_shape.hpp"

namespace strata::test_collective_formulas {
namespace {

Cluster cluster_of(double intra_latency, double intra_bandwidth, double inter_latency, double inter_bandwidth,
                   int nics) {
  Cluster cluster;
  cluster.nodes = 64;
  cluster.devices_per_node = 8;
  cluster.intra_node = {intra_latency, intra_bandwidth};
  cluster.inter_node = {inter_latency, inter_bandwidth};
  cluster.nics_per_node = nics;
  return cluster;
}

TEST(RingSeconds, IsStepsTimesAlphaAndShareOfBeta) {
  constexpr std::int64_t v = 1 << 20;
  const double step = 1e-5 + (1 << 20) / 8 * 1e-9;
  EXPECT_DOUBLE_EQ(ring_seconds(Collective::all_reduce, v, 8, 1e-5, 1e-9), 14 * step);
  EXPECT_DOUBLE_EQ(ring_seconds(Collective::reduce_scatter, v, 8, 1e-5, 1e-9), 7 * step);
  EXPECT_DOUBLE_EQ(ring_seconds(Collective::all_gather, v, 8, 1e-5, 1e-9), 7 * step);
  EXPECT_DOUBLE_EQ(ring_seconds(Collective::send, v, 2, 1e-5, 1e-9), 1e-5 + v * 1e-9);
  for (const Collective pipelined : {Collective::broadcast, Collective::reduce}) {
    EXPECT_DOUBLE_EQ(ring_seconds(pipelined, v, 8, 1e-5, 1e-9), 14 * step);
    EXPECT_EQ(ring_steps(pipelined, 8), 7);
    EXPECT_EQ(ring_seconds(pipelined, v, 1, 1e-5, 1e-9), 0.0);
  }
  EXPECT_EQ(ring_seconds(Collective::all_reduce, v, 1, 1e-5, 1e-9), 0.0);
}

TEST(NcclLikeSeconds, LargeTensorsGoAtTheRateOfTheSlowestLink) {
  const Cluster cluster = cluster_of(0.0, 200e9, 0.0, 25e9, 4);
  constexpr std::int64_t v = std::int64_t{1} << 30;
  const auto volume = static_cast<double>(v);
  EXPECT_NEAR(nccl_like_seconds(Collective::all_reduce, v, {8, 1}, cluster.intra_node, cluster),
              2.0 * 7 / 8 * volume / 200e9, 1e-12);
  EXPECT_NEAR(nccl_like_seconds(Collective::all_gather, v, {8, 1}, cluster.intra_node, cluster),
              7.0 / 8 * volume / 200e9, 1e-12);
  // Four NICs of 25 GB/s carry what 16 nodes of 8 exchange.
  EXPECT_NEAR(nccl_like_seconds(Collective::reduce_scatter, v, {8, 16}, cluster.intra_node, cluster),
              127.0 / 128 * volume / 100e9, 1e-12);
  // One rank a node uses one NIC.
  EXPECT_NEAR(nccl_like_seconds(Collective::reduce_scatter, v, {1, 16}, cluster.intra_node, cluster),
              15.0 / 16 * volume / 25e9, 1e-12);
  // All of it over the slowest link, to the root as from it.
  for (const Collective kind : {Collective::broadcast, Collective::reduce}) {
    EXPECT_NEAR(nccl_like_seconds(kind, v, {8, 1}, cluster.intra_node, cluster), volume / 200e9, 1e-12);
    EXPECT_NEAR(nccl_like_seconds(kind, v, {1, 16}, cluster.intra_node, cluster), volume / 25e9, 1e-12);
  }
  EXPECT_EQ(nics_used({8, 16}, cluster), 4);
  EXPECT_EQ(nics_used({1, 16}, cluster), 1);
  EXPECT_EQ(nics_used({8, 1}, cluster), 0);
}

TEST(NcclLikeSeconds, SmallTensorsCostLatencyAndTreesHaveLessOfIt) {
  const Cluster cluster = cluster_of(2e-6, 200e9, 1e-5, 25e9, 1);
  // 64 nodes: two passes of a tree of depth 6 at a quarter of the latency, not 126 steps of a ring.
  EXPECT_NEAR(nccl_like_seconds(Collective::all_reduce, 8, {1, 64}, cluster.intra_node, cluster), 0.25 * 2 * 6 * 1e-5,
              1e-8);
}

/// A ring of p members is closed after p-1 messages; an all-reduce goes around it twice.
TEST(NcclLikeSeconds, SmallTensorsTakeARoundLessThanARingHasMembers) {
  const Cluster cluster = cluster_of(2e-6, 200e9, 1e-5, 25e9, 1);
  const double least = 0.25;  // of the latency, in the protocol for small messages
  for (const int p : {2, 3, 8, 16}) {
    for (const Collective kind : {Collective::all_gather, Collective::reduce_scatter, Collective::all_to_all,
                                  Collective::broadcast, Collective::reduce}) {
      EXPECT_NEAR(nccl_like_seconds(kind, 8, {1, p}, cluster.intra_node, cluster), least * (p - 1) * 1e-5, 1e-8)
          << to_string(kind) << " over " << p << " nodes";
      EXPECT_NEAR(nccl_like_seconds(kind, 8, {p, 1}, cluster.intra_node, cluster), least * (p - 1) * 2e-6, 1e-9)
          << to_string(kind) << " over " << p << " ranks of a node";
    }
    EXPECT_NEAR(nccl_like_seconds(Collective::all_reduce, 8, {p, 1}, cluster.intra_node, cluster),
                least * 2 * (p - 1) * 2e-6, 1e-9);
  }
}

TEST(NcclLikeSeconds, AHopOfARingBetweenNodesMayTakeMoreThanItsLinks) {
  Cluster cluster = cluster_of(4e-6, 200e9, 14e-6, 25e9, 4);
  const auto gather = [&](const Factor& group) {
    return nccl_like_seconds(Collective::all_gather, 1, group, cluster.intra_node, cluster);
  };
  const double inside = gather({8, 1});
  cluster.ring_hop_seconds = 80e-6;
  EXPECT_NEAR(gather({8, 16}), 127 * 80e-6, 1e-9) << "no protocol has less";
  EXPECT_EQ(gather({8, 1}), inside) << "no node is left";
  // An all-reduce has trees, whose latency is that of links.
  EXPECT_LT(nccl_like_seconds(Collective::all_reduce, 1, {8, 16}, cluster.intra_node, cluster), 100e-6);
}

TEST(NcclLikeSeconds, GrowsWithSizeAndMembers) {
  const Cluster cluster = cluster_of(3e-6, 200e9, 1e-5, 25e9, 4);
  for (const Collective kind :
       {Collective::all_reduce, Collective::reduce_scatter, Collective::broadcast, Collective::reduce}) {
    double before = 0.0;
    for (std::int64_t bytes = 8; bytes < std::int64_t{1} << 32; bytes *= 3) {
      const double seconds = nccl_like_seconds(kind, bytes, {8, 4}, cluster.intra_node, cluster);
      EXPECT_GT(seconds, before);
      before = seconds;
    }
    EXPECT_LE(nccl_like_seconds(kind, 1 << 24, {8, 4}, cluster.intra_node, cluster),
              nccl_like_seconds(kind, 1 << 24, {8, 32}, cluster.intra_node, cluster));
  }
}

TEST(IntraLink, IsTheSlowestOfTheRing) {
  Cluster cluster = cluster_of(2e-5, 6e9, 0.0, 1e9, 1);
  cluster.pairs = {{0, 1, {4e-6, 48e9}}, {3, 2, {4e-6, 40e9}}};
  const auto bandwidth = [&](const std::vector<int>& devices) {
    return intra_link(cluster, devices).bandwidth_bytes_per_second;
  };
  EXPECT_EQ(bandwidth({0, 1}), 48e9);
  EXPECT_EQ(bandwidth({1, 0}), 48e9);
  EXPECT_EQ(bandwidth({2, 3}), 40e9);
  EXPECT_EQ(bandwidth({0, 2}), 6e9);
  EXPECT_EQ(bandwidth({0, 1, 2, 3}), 6e9);
  EXPECT_EQ(bandwidth({0}), 6e9);
  EXPECT_EQ(bandwidth({}), 6e9);
}

TEST(GroupShape, CountsRanksANodeAndNodes) {
  const auto shape = [](const std::vector<int>& ranks, int ranks_per_node) {
    return group_shape(ranks, ranks_per_node);
  };
  EXPECT_EQ(shape({0, 1, 2, 3}, 4), (Factor{4, 1}));
  EXPECT_EQ(shape({1, 5, 9}, 4), (Factor{1, 3}));
  EXPECT_EQ(shape({0, 1, 4, 5}, 4), (Factor{2, 2}));
  EXPECT_EQ(shape({0, 1, 4}, 4), (Factor{2, 2})) << "uneven: the fuller node counts";
  EXPECT_EQ(placement(std::vector<int>{5, 7, 9}, 4), (Placement{{2, 2}, {1, 3}}));
}

TEST(FitAlphaBeta, FindsTheLineAndSaysHowFarItIsOff) {
  std::vector<TransferTime> times;
  for (double bytes = 64; bytes < 1e8; bytes *= 4) times.push_back({bytes, 2e-5 + 3e-10 * bytes});
  Line line = fit_alpha_beta(times);
  EXPECT_NEAR(line.alpha_seconds, 2e-5, 1e-12);
  EXPECT_NEAR(line.beta_seconds_per_byte, 3e-10, 1e-17);
  EXPECT_LT(line.mean_relative_error, 1e-9);
  for (std::size_t i = 0; i < times.size(); ++i) times[i].seconds *= i % 2 == 0 ? 1.1 : 0.9;
  line = fit_alpha_beta(times);
  EXPECT_NEAR(line.mean_relative_error, 0.1, 0.03);
  // Falling times would need a negative slope.
  const TransferTime falling[] = {{1.0, 2.0}, {2.0, 1.0}};
  EXPECT_EQ(fit_alpha_beta(falling).beta_seconds_per_byte, 0.0);
}

TEST(FitLinks, FindsTheTwoNetworksBehindAllCollectives) {
  constexpr double alpha[] = {2e-6, 3e-5}, beta[] = {4e-12, 1e-10};
  std::vector<CollectiveTime> times;
  for (const Factor group : {Factor{2, 1}, Factor{4, 1}, Factor{1, 2}, Factor{4, 2}}) {
    const int link = group.nodes == 1 ? 0 : 1;
    for (const Collective kind : {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
                                  Collective::all_to_all, Collective::broadcast, Collective::reduce}) {
      for (std::int64_t bytes = 64; bytes < 1 << 26; bytes *= 16) {
        const double strange = is_rooted(kind) ? 7.0 : 1.0;  // of which table 2 says nothing
        times.push_back(
            {kind, group, "shm", bytes, strange * ring_seconds(kind, bytes, group.total(), alpha[link], beta[link])});
      }
    }
  }
  const LinkLines lines = fit_links(times);
  EXPECT_NEAR(lines.inside.alpha_seconds, alpha[0], 1e-12);
  EXPECT_NEAR(lines.inside.beta_seconds_per_byte, beta[0], 1e-17);
  EXPECT_NEAR(lines.across.alpha_seconds, alpha[1], 1e-12);
  EXPECT_NEAR(lines.across.beta_seconds_per_byte, beta[1], 1e-17);
  EXPECT_EQ(lines.num_inside, 2 * 4 * 5);
  EXPECT_EQ(fit_links({}).num_across, 0);
}

}  // namespace
}  // namespace strata::test_collective_formulas
