/// @file
/// The sum at one rank: every root, every transport, lengths of no and of many segments; and the order of additions
/// that each transport promises, by sums that round.

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <string>
#include <thread>

#include "mpi/comm/payload.hpp"

namespace strata::comm::test_reduce {
namespace {

struct Case {
  const char* transport;
  ProgressMode progress;
};

EngineOptions options_of(const Case& which) {
  EngineOptions options;
  options.transport = which.transport;
  options.progress = which.progress;
  options.watchdog_seconds = 60;
  return options;
}

class Reduce : public testing::TestWithParam<Case> {};
class ReduceOverNodes : public testing::TestWithParam<ProgressMode> {};
class OrderOfAdditions : public testing::TestWithParam<Case> {};

/// Both reductions, in place and not, to every member; each sends what it is charged.
void check_all_roots(const World& world, Engine& engine, const std::vector<int>& ranks,
                     const std::vector<std::int64_t>& sizes) {
  const int group = engine.create_group(ranks);
  const auto num_ranks = static_cast<int>(ranks.size());
  const auto me = static_cast<int>(std::ranges::find(ranks, world.rank()) - ranks.begin());
  for (const std::int64_t size : sizes) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (int root = 0; root < num_ranks; ++root) {
        const bool in_place = (root + size) % 2 == 0;
        const Reduction reduction = (root + size) % 3 == 0 ? Reduction::max : Reduction::sum;
        Payload payload(world, ranks, Collective::reduce, dtype, size, in_place, root, reduction);
        const Ticket ticket = engine.post(payload.request(group));
        engine.wait(ticket);
        payload.expect_right();
        EXPECT_EQ(engine.times(ticket).bytes_sent,
                  elements_sent(Collective::reduce, size, num_ranks, me, root) * size_of(dtype))
            << payload.request(group).label;
      }
    }
  }
}

constexpr std::int64_t kTree = 60001;    ///< floats of one segment, yet no message that MPI would buffer
constexpr std::int64_t kChain = 400009;  ///< of seven: more than are on their way at a time

/// 65537 floats are two segments.
const std::vector<std::int64_t> kSizes{0, 1, 2, 7, 63, 1000, 65536, 65537, kChain};

TEST_P(Reduce, EqualTheLocallyComputedValueAtEveryRoot) {
  const World world;
  Engine engine(world, options_of(GetParam()));
  check_all_roots(world, engine, all_ranks(world), kSizes);
}

// Everybody else has posted all of it, and what writes to the inputs next, when the root begins to receive: sums wait
// until there is a place for them, and inputs stay as they are until they have left.
TEST_P(Reduce, ALateRootGetsWhatWasThere) {
  const World world;
  Engine engine(world, options_of(GetParam()));
  const int size = world.size();
  for (const std::int64_t elements : {kTree, kChain}) {
    std::vector<float> part(static_cast<std::size_t>(elements));
    for (std::int64_t i = 0; i < elements; ++i) {
      part[static_cast<std::size_t>(i)] = static_cast<float>(i % 1000 + world.rank());
    }
    std::vector<float> sum(part.size(), -1.0F);
    Request reduce;
    reduce.kind = Collective::reduce;
    reduce.num_elements = elements;
    reduce.group = engine.create_group(all_ranks(world));
    reduce.input = part.data();
    reduce.output = sum.data();
    Request overwrite = reduce;
    overwrite.kind = Collective::broadcast;
    overwrite.peer = size - 1;
    overwrite.output = part.data();
    if (world.rank() == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    engine.post(reduce);
    engine.wait(engine.post(overwrite));
    for (std::int64_t i = 0; i < elements; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const std::int64_t expected = world.rank() == 0 ? size * (i % 1000) + size * (size - 1) / 2 : -1;
      ASSERT_EQ(sum[at], static_cast<float>(expected)) << "element " << i << " of " << elements;
      ASSERT_EQ(part[at], static_cast<float>(i % 1000 + size - 1)) << "element " << i << " of " << elements;
    }
  }
}

TEST_P(ReduceOverNodes, InAnyOrder) {
  for (const int ranks_per_node : {2, 3, 4}) {
    WorldOptions nodes;
    nodes.pretended_ranks_per_node = ranks_per_node;
    const World world(nodes);
    if (world.num_nodes() == 1 || world.size() % ranks_per_node != 0) {
      continue;
    }
    Engine engine(world, options_of({"two_level", GetParam()}));
    const std::vector<int> ranks = all_ranks(world);
    // Of 600011 elements on two nodes a node's place for its sum holds a fifth.
    check_all_roots(world, engine, ranks, {1, 5, 1000, 65537, 600011});
    check_all_roots(world, engine, {ranks.rbegin(), ranks.rend()}, {7, 70001});
  }
}

float value(int rank, std::int64_t index) {
  return std::sin(static_cast<float>(index) * 0.37F + static_cast<float>(rank)) * std::exp2(static_cast<float>(rank));
}

/// @p expected: sum of element i at @p root.
void check_sums(const World& world, Engine& engine, std::int64_t elements, int root,
                const std::function<float(std::int64_t)>& expected) {
  std::vector<float> values(static_cast<std::size_t>(elements));
  for (std::int64_t i = 0; i < elements; ++i) values[static_cast<std::size_t>(i)] = value(world.rank(), i);
  Request request;
  request.kind = Collective::reduce;
  request.num_elements = elements;
  request.group = engine.create_group(all_ranks(world));
  request.peer = root;
  request.input = values.data();
  request.output = values.data();
  engine.wait(engine.post(request));
  if (world.rank() != root) return;
  for (std::int64_t i = 0; i < elements; ++i) {
    ASSERT_EQ(values[static_cast<std::size_t>(i)], expected(i)) << "element " << i << " of " << elements;
  }
}

TEST_P(OrderOfAdditions, IsAsPromised) {
  const World world;
  Engine engine(world, options_of(GetParam()));
  const int size = world.size();
  for (const int root : {0, size / 2, size - 1}) {
    if (GetParam().transport == std::string("shm")) {
      // The others in their order, then the root.
      const auto in_order = [&](std::int64_t i) {
        float sum = value(root, i);
        bool is_first = true;
        for (int rank = 0; rank < size; ++rank) {
          if (rank == root) continue;
          sum = is_first ? value(rank, i) : sum + value(rank, i);
          is_first = false;
        }
        return is_first ? sum : sum + value(root, i);
      };
      check_sums(world, engine, kTree, root, in_order);
      check_sums(world, engine, kChain, root, in_order);
      continue;
    }
    const auto at_distance = [&](int distance, std::int64_t i) { return value((root + distance) % size, i); };
    // From the farthest to the root.
    check_sums(world, engine, kChain, root, [&](std::int64_t i) {
      float sum = at_distance(size - 1, i);
      for (int distance = size - 2; distance >= 0; --distance) sum = at_distance(distance, i) + sum;
      return sum;
    });
    // Of each subtree, from the smallest, to its own.
    check_sums(world, engine, kTree, root, [&](std::int64_t i) {
      const std::function<float(int, int)> subtree = [&](int distance, int num_ranks) {
        float sum = at_distance(distance, i);
        for (int part = 1; part < num_ranks && distance + part < size; part *= 2) {
          sum += subtree(distance + part, part);
        }
        return sum;
      };
      return subtree(0, size);
    });
  }
}

const auto kCases = testing::Values(Case{"shm", ProgressMode::thread}, Case{"shm", ProgressMode::polling},
                                    Case{"mpi", ProgressMode::thread}, Case{"mpi", ProgressMode::polling});
std::string name_of(const testing::TestParamInfo<Case>& entry) {
  return std::string(entry.param.transport) + (entry.param.progress == ProgressMode::thread ? "_thread" : "_polling");
}
INSTANTIATE_TEST_SUITE_P(Transports, Reduce, kCases, name_of);
INSTANTIATE_TEST_SUITE_P(Transports, OrderOfAdditions, kCases, name_of);
INSTANTIATE_TEST_SUITE_P(Progress, ReduceOverNodes, testing::Values(ProgressMode::thread, ProgressMode::polling),
                         [](const testing::TestParamInfo<ProgressMode>& entry) {
                           return entry.param == ProgressMode::thread ? "thread" : "polling";
                         });

}  // namespace
}  // namespace strata::comm::test_reduce
