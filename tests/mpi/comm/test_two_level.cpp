/// @file
/// Groups over several nodes, with nodes pretended on one host: shared memory inside, MPI across.

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "mpi/comm/payload.hpp"
#include "mpi/comm/pieces.hpp"

namespace strata::comm::test_two_level {
namespace {

const std::vector<std::int64_t> kSizes{0, 1, 5, 7, 64, 1000, 65537, 400009};

class TwoLevel : public testing::TestWithParam<ProgressMode> {
 protected:
  static World pretend(int ranks_per_node) {
    WorldOptions options;
    options.pretended_ranks_per_node = ranks_per_node;
    return World(options);
  }
  static EngineOptions engine_options(const std::string& transport = "two_level") {
    EngineOptions options;
    options.transport = transport;
    options.progress = GetParam();
    options.watchdog_seconds = 60;
    return options;
  }
};

TEST_P(TwoLevel, AllCollectivesOverTheWholeWorld) {
  for (const int ranks_per_node : {2, 3}) {
    const World world = pretend(ranks_per_node);
    if (world.size() % ranks_per_node != 0) {
      continue;
    }
    Engine engine(world, engine_options());
    const int group = engine.create_group(all_ranks(world));
    EXPECT_EQ(engine.transport_name(group), "two_level(shm,mpi)");
    check_all_collectives(world, engine, group, all_ranks(world), kSizes);
    check_pieces(world, engine, group, all_ranks(world));
  }
}

// Under mpiexec one node and shared memory; tests/slurm starts the ranks in several network namespaces.
TEST_P(TwoLevel, NodesAsTheyAre) {
  const World world;
  ASSERT_EQ(world.size() % world.num_nodes(), 0);
  Engine engine(world, engine_options("auto"));
  const int group = engine.create_group(all_ranks(world));
  const std::string expected = world.num_nodes() == 1              ? "shm"
                               : world.num_nodes() == world.size() ? "mpi"
                                                                   : "two_level(shm,mpi)";
  EXPECT_EQ(engine.transport_name(group), expected);
  check_all_collectives(world, engine, group, all_ranks(world), {0, 7, 1000, 65537});
  RecordProperty("transport", engine.transport_name(group));
}

TEST_P(TwoLevel, MembersInAnotherOrder) {
  const World world = pretend(2);
  Engine engine(world, engine_options("auto"));
  std::vector<int> ranks;  // last node first, and its ranks the other way round
  for (int rank = world.size() - 1; rank >= 0; --rank) {
    ranks.push_back(rank);
  }
  const int group = engine.create_group(ranks);
  EXPECT_EQ(engine.transport_name(group), "two_level(shm,mpi)");
  check_all_collectives(world, engine, group, ranks, {3, 1000, 70001});
  check_pieces(world, engine, group, ranks);
}

TEST_P(TwoLevel, MessagesInsideAndAcross) {
  const World world = pretend(2);
  Engine engine(world, engine_options());
  const int group = engine.create_group(all_ranks(world));
  const int size = world.size();
  for (int distance = 1; distance < size; ++distance) {
    const int to = (world.rank() + distance) % size;
    const int from = (world.rank() - distance + size) % size;
    Payload sent(world, all_ranks(world), Collective::send, DType::bf16, 200003, false, to);
    Payload received(world, all_ranks(world), Collective::recv, DType::bf16, 200003, false, from);
    const Ticket out = engine.post(sent.request(group, 0));
    const Ticket in = engine.post(received.request(group, 1));
    engine.wait(in);
    engine.wait(out);
    received.expect_right();
    EXPECT_EQ(engine.times(out).bytes_sent, 200003 * 2);
    EXPECT_EQ(engine.times(in).bytes_sent, 0);
  }
}

TEST_P(TwoLevel, TransportsAreWhatTheirNamesSay) {
  const World world = pretend(2);
  const std::vector<int> one_a_node = world.rank() % 2 == 0 ? std::vector<int>{0, 2} : std::vector<int>{1, 3};
  const std::vector<int> one_node = world.rank() / 2 == 0 ? std::vector<int>{0, 1} : std::vector<int>{2, 3};
  Engine engine(world, engine_options("auto"));
  if (world.rank() < 4) {
    EXPECT_EQ(engine.transport_name(engine.create_group(one_a_node)), "mpi");
    EXPECT_EQ(engine.transport_name(engine.create_group(one_node)), "shm");
  }
  if (world.rank() < 3) {
    EXPECT_EQ(engine.transport_name(engine.create_group({0, 1, 2})), "mpi");
  }
  EXPECT_EQ(engine.transport_name(engine.create_group({world.rank()})), "none");

  Engine strict(world, engine_options());
  if (world.rank() < 3) {
    EXPECT_THROW(strict.create_group({0, 1, 2}), Unsupported);
  }
  Engine inside(world, engine_options("shm"));
  EXPECT_THROW(inside.create_group(all_ranks(world)), Unsupported);
  EXPECT_THROW(Engine(world, engine_options("carrier_pigeon")), UserError);
}

INSTANTIATE_TEST_SUITE_P(Progress, TwoLevel, testing::Values(ProgressMode::thread, ProgressMode::polling),
                         [](const testing::TestParamInfo<ProgressMode>& entry) {
                           return entry.param == ProgressMode::thread ? "thread" : "polling";
                         });

}  // namespace
}  // namespace strata::comm::test_two_level
