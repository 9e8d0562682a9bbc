/// @file
/// Nodes that are emulated on one machine: messages inside them take one link, those between them another.

#include <gtest/gtest.h>

#include <deque>

#include "base/error.hpp"
#include "mpi/comm/payload.hpp"

namespace strata::comm::test_emulated_nodes {
namespace {

constexpr int kRanksPerNode = 2;
constexpr std::int64_t kElements = 24000;

EngineOptions options(const EmulatedLink& between, const EmulatedLink& inside) {
  EngineOptions options;
  options.emulated_link = between;
  options.emulated_nodes = EmulatedNodes{.ranks_per_node = kRanksPerNode, .inside = inside};
  options.watchdog_seconds = 60;
  return options;
}

/// @p rank's node, and the ranks at its place of their nodes.
std::vector<int> node_of(int rank) {
  const int first = rank / kRanksPerNode * kRanksPerNode;
  return {first, first + 1};
}
std::vector<int> column_of(const World& world, int rank) {
  std::vector<int> ranks;
  for (int r = rank % kRanksPerNode; r < world.size(); r += kRanksPerNode) ranks.push_back(r);
  return ranks;
}

/// From the first rank's begin to the last one's end: a rank that comes late finds messages that are already there.
double all_reduce_seconds(const World& world, Engine& engine, int group, const std::vector<int>& ranks) {
  Payload payload(world, ranks, Collective::all_reduce, DType::f32, kElements, false);
  world.barrier();
  const Ticket ticket = engine.post(payload.request(group));
  engine.wait(ticket);
  payload.expect_right();
  const CompletedTimes times = engine.times(ticket);
  double begin = static_cast<double>(times.begin_ns), end = static_cast<double>(times.end_ns);
  world.all_reduce_min({&begin, 1});
  world.all_reduce_max({&end, 1});
  return (end - begin) * 1e-9;
}

TEST(EmulatedNodes, DeliverTheRightValues) {
  const World world;
  Engine engine(world, options({2e-5, 1e-9}, {1e-5, 1e-10}));
  for (const std::vector<int>& ranks : {all_ranks(world), node_of(world.rank()), column_of(world, world.rank())}) {
    const int group = engine.create_group(ranks);
    EXPECT_EQ(engine.transport_name(group),
              "emulated_link(alpha=2e-05,beta=1e-09; inside alpha=1e-05,beta=1e-10) over mpi");
    check_all_collectives(world, engine, group, ranks, {0, 1, 7, 1000, 65537, 300007});
  }
}

// Between nodes a message takes 20 s here, so that a busy machine cannot be taken for it.
TEST(EmulatedNodes, InsideNoMessageTakesTheLinkBetweenThem) {
  const World world;
  Engine engine(world, options({20.0, 0.0}, {1e-3, 1e-8}));
  const std::vector<int> ranks = node_of(world.rank());
  const double seconds = all_reduce_seconds(world, engine, engine.create_group(ranks), ranks);
  EXPECT_GE(seconds, 2 * (1e-3 + kElements / 2 * 4 * 1e-8));
  EXPECT_LT(seconds, 20.0);
}

TEST(EmulatedNodes, BetweenThemEveryMessageTakesTheirLink) {
  const World world;
  constexpr double alpha = 2e-2, beta = 1e-7;
  Engine engine(world, options({alpha, beta}, {0.0, 0.0}));
  const std::vector<int> column = column_of(world, world.rank());
  const auto p = static_cast<double>(column.size());
  EXPECT_GE(all_reduce_seconds(world, engine, engine.create_group(column), column),
            2 * (p - 1) * (alpha + kElements / p * 4 * beta));
  // A group over several nodes waits in every step for a rank that sends to another node, or is that rank.
  const std::vector<int> all = all_ranks(world);
  const auto n = static_cast<double>(all.size());
  EXPECT_GE(all_reduce_seconds(world, engine, engine.create_group(all), all),
            2 * (n - 1) * (alpha + kElements / n * 4 * beta));
}

TEST(EmulatedNodes, TheirTwoLinksDoNotWaitForEachOther) {
  const World world;
  Engine engine(world, options({3.0, 0.0}, {1e-5, 1e-10}));
  const std::vector<int> ranks[] = {column_of(world, world.rank()), node_of(world.rank())};
  const int groups[] = {engine.create_group(ranks[0]), engine.create_group(ranks[1])};
  std::deque<Payload> payloads;
  Ticket tickets[2];
  world.barrier();
  for (int i = 0; i < 2; ++i) {
    payloads.emplace_back(world, ranks[i], Collective::all_gather, DType::f32, kElements, false, 0, Reduction::sum, i);
    tickets[i] = engine.post(payloads.back().request(groups[i], i));
  }
  engine.wait_all();
  for (Payload& payload : payloads) payload.expect_right();
  EXPECT_LT(engine.times(tickets[1]).end_ns, engine.times(tickets[0]).end_ns);
}

TEST(EmulatedNodes, HaveAsManyRanksEach) {
  const World world;
  EngineOptions uneven = options({0.0, 0.0}, {0.0, 0.0});
  uneven.emulated_nodes->ranks_per_node = world.size() + 1;
  EXPECT_THROW(Engine(world, uneven), UserError);
  EngineOptions negative = options({0.0, 0.0}, {0.0, -1.0});
  EXPECT_THROW(Engine(world, negative), UserError);
}

}  // namespace
}  // namespace strata::comm::test_emulated_nodes
