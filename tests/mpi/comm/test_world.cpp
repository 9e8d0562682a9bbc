/// @file
/// Nodes, the control plane, and the launch checks.

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "comm/launch_check.hpp"
#include "comm/session.hpp"
#include "comm/world.hpp"

namespace strata::comm::test_world {
namespace {

using testing::HasSubstr;

TEST(World, OneHostIsOneNode) {
  const World world;
  EXPECT_EQ(world.num_nodes(), 1);
  EXPECT_EQ(world.node(), 0);
  EXPECT_EQ(world.local_rank(), world.rank());
  EXPECT_EQ(world.ranks_on_node(), world.size());
  EXPECT_TRUE(world.one_machine());
  EXPECT_EQ(world.process_id_of(world.rank()), getpid());
  EXPECT_NO_THROW(world.check_peers());
}

TEST(World, DifferentNodeNamesAreDifferentNodes) {
  const World self;
  WorldOptions options;
  options.node_name = self.rank() % 2 == 0 ? "even" : "odd";
  const World world(options);
  EXPECT_EQ(world.num_nodes(), std::min(2, world.size()));
  EXPECT_EQ(world.node(), world.rank() % 2);
  EXPECT_EQ(world.local_rank(), world.rank() / 2);
  EXPECT_EQ(world.node_names()[static_cast<std::size_t>(world.node())], options.node_name);
  EXPECT_EQ(world.topology_note().empty(), world.size() == 1);
}

// Whatever starts the ranks: under mpiexec here all are on one node; tests/slurm starts them in several network
// namespaces.
TEST(World, RanksOfOneNamespaceAreANode) {
  WorldOptions options;
  if (const char* name = std::getenv("SLURMD_NODENAME")) options.node_name = name;
  const World world(options);
  std::array<char, 64> link{};
  ASSERT_GT(readlink("/proc/self/ns/net", link.data(), link.size() - 1), 0);
  const std::vector<std::string> namespaces = world.all_gather(link.data());
  const std::string mine = namespaces[static_cast<std::size_t>(world.rank())];
  EXPECT_EQ(world.num_nodes(), static_cast<int>(std::set(namespaces.begin(), namespaces.end()).size()));
  EXPECT_EQ(world.ranks_on_node(), std::count(namespaces.begin(), namespaces.end(), mine));
  EXPECT_EQ(world.local_rank(), std::count(namespaces.begin(), namespaces.begin() + world.rank(), mine));
  for (int rank = 0; rank < world.size(); ++rank) {
    EXPECT_EQ(world.node_of(rank) == world.node(), namespaces[static_cast<std::size_t>(rank)] == mine);
  }
  RecordProperty("node_table", fmt::format("{}", fmt::join(world.node_names(), " ")));
}

TEST(World, ControlPlane) {
  const World world;
  const int last = world.size() - 1;
  const std::string text = "rank " + std::to_string(world.rank());
  EXPECT_EQ(world.broadcast(text, last), "rank " + std::to_string(last));
  EXPECT_EQ(world.broadcast("", 0), "");
  const auto gathered = world.gather(std::string(static_cast<std::size_t>(world.rank()), 'x'), last);
  EXPECT_EQ(gathered.size(), world.rank() == last ? static_cast<std::size_t>(world.size()) : 0U);
  for (std::size_t rank = 0; rank < gathered.size(); ++rank) {
    EXPECT_EQ(gathered[rank], std::string(rank, 'x'));
  }
  const auto all = world.all_gather(text);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    EXPECT_EQ(all[rank], "rank " + std::to_string(rank));
  }
  std::array<double, 2> values{1.0 + world.rank(), -1.0};
  world.all_reduce_sum(values);
  EXPECT_EQ(values[0], world.size() * (world.size() + 1) / 2);
  EXPECT_EQ(values[1], -world.size());
  values = {static_cast<double>(world.rank()), static_cast<double>(-world.rank())};
  world.all_reduce_max(values);
  EXPECT_EQ(values[0], last);
  EXPECT_EQ(values[1], 0.0);
  values = {static_cast<double>(world.rank()), static_cast<double>(-world.rank())};
  world.all_reduce_min(values);
  EXPECT_EQ(values[0], 0.0);
  EXPECT_EQ(values[1], -last);
}

// Ranks call the two in unlike orders: neither waits for the other.
TEST(World, ADuplicateIsAnotherThreadsOwn) {
  const World world({.pretended_ranks_per_node = 2});
  const std::unique_ptr<const World> other = world.duplicate();
  EXPECT_EQ(other->rank(), world.rank());
  EXPECT_EQ(other->node_names(), world.node_names());
  EXPECT_EQ(other->local_rank(), world.local_rank());
  EXPECT_EQ(other->process_id_of(0), world.process_id_of(0));
  const auto count = [&](const World& all) {
    std::array<double, 1> ranks = {1.0};
    all.all_reduce_sum(ranks);
    return ranks[0];
  };
  std::future<double> meanwhile = std::async(std::launch::async, [&] {
    if (world.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return count(*other);
  });
  EXPECT_EQ(count(world), world.size());
  EXPECT_EQ(meanwhile.get(), world.size());
}

TEST(World, WaitingLeavesTheCoreToOthers) {
  const World world;
  world.barrier();
  if (world.rank() == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
  const std::clock_t before = std::clock();  // CPU time of the process
  world.barrier();
  const double cpu_seconds = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  EXPECT_LT(cpu_seconds, 0.1) << "a spinning wait would have used 0.3 s";
}

std::string message_of(const World& world, const LaunchExpectation& expected) {
  try {
    check_launch(world, expected);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(LaunchCheck, SaysWhatDiffers) {
  const World world;
  const int size = world.size();
  LaunchExpectation expected;
  expected.num_ranks = size;
  expected.num_nodes = 1;
  expected.ranks_per_node = size;
  expected.binary_hash = 0xabc;
  EXPECT_EQ(message_of(world, expected), "");

  LaunchExpectation wrong = expected;
  wrong.num_nodes = 2;
  EXPECT_THAT(message_of(world, wrong), HasSubstr("the plan is for 2 nodes"));

  wrong = expected;
  wrong.ranks_per_node = size + 1;
  EXPECT_THAT(message_of(world, wrong),
              HasSubstr("runs " + std::to_string(size) + " ranks but the plan has " + std::to_string(size + 1)));

  if (size > 1) {
    wrong = expected;
    wrong.binary_hash = world.rank() == size - 1 ? 0xdef : 0xabc;
    EXPECT_THAT(message_of(world, wrong), HasSubstr("rank " + std::to_string(size - 1)));
    EXPECT_THAT(message_of(world, wrong), HasSubstr("0000000000000def"));

    wrong = expected;
    wrong.instruction_set = world.rank() == size - 1 ? InstructionSet::avx512 : InstructionSet::avx2;
    EXPECT_THAT(message_of(world, wrong), HasSubstr("computes with avx512, that of rank 0"));
    EXPECT_THAT(message_of(world, wrong), HasSubstr("STRATA_MAX_CPU_ISA=avx2"));
  }
}

TEST(LaunchCheck, TheLauncherCountsOtherwise) {
  const World world;
  EXPECT_NO_THROW(check_launcher(world, 0, ""));
  EXPECT_NO_THROW(check_launcher(world, world.size(), "PMI_SIZE"));
  try {
    check_launcher(world, world.size() + 4, "SLURM_NTASKS");
    ADD_FAILURE() << "not refused";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("MPI started " + std::to_string(world.size())));
    EXPECT_THAT(error.what(), HasSubstr("SLURM_NTASKS is " + std::to_string(world.size() + 4)));
  }
}

TEST(LaunchCheck, UnequalNodes) {
  const World self;
  if (self.size() != 3) {
    GTEST_SKIP() << "needs 3 ranks";
  }
  WorldOptions options;
  options.pretended_ranks_per_node = 2;
  const World world(options);
  EXPECT_EQ(world.num_nodes(), 2);
  EXPECT_THAT(message_of(world, {}), HasSubstr("runs 1 ranks but node"));
}

TEST(Session, NamesItsLibrary) { EXPECT_THAT(mpi_version(), HasSubstr("MPI")); }

}  // namespace
}  // namespace strata::comm::test_world
