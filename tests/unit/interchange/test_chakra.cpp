/// @file
/// Chakra traces read back and walked as the feeder of ASTRA-sim does: a node is issued
/// when its dependencies are complete, collectives meet by group, messages by ends and tag.

#include <chakra/trace.pb.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "interchange/chakra.hpp"
#include "unit/interchange/chakra_trace.hpp"
#include "unit/ir/program/handmade_program.hpp"

namespace strata::test_chakra {
namespace {

using test::attribute;
using testing::ElementsAre;
using testing::IsEmpty;

std::int64_t comm_size(const chakra::Node& node) { return attribute(node, "comm_size").int64_val(); }

NodeCosts ten_microseconds() {
  return [](const Program&, const Instruction&) { return NodeCost{1e-5, 0}; };
}

/// Issues what is free until nothing moves; fails if something is left. Sums up what each rank sends if every size
/// divides by its group's.
std::vector<std::int64_t> execute(const std::vector<test::ChakraTrace>& traces,
                                  const std::map<std::string, std::size_t>& group_sizes) {
  std::vector<std::set<std::uint64_t>> done(traces.size());
  std::vector<std::int64_t> sent(traces.size());
  const auto ready = [&](std::size_t rank, const chakra::Node& node) {
    if (done[rank].contains(node.id())) return false;
    const auto is_done = [&](std::uint64_t id) { return done[rank].contains(id); };
    return std::ranges::all_of(node.data_deps(), is_done) && std::ranges::all_of(node.ctrl_deps(), is_done);
  };
  // The first node of a rank that is ready and of which `matches` is true.
  const auto find = [&](std::size_t rank, const auto& matches) {
    for (const chakra::Node& node : traces[rank].nodes) {
      if (ready(rank, node) && matches(node)) return &node;
    }
    return static_cast<const chakra::Node*>(nullptr);
  };
  const auto meet = [&](std::size_t rank, const chakra::Node& node) {
    std::vector<std::pair<std::size_t, const chakra::Node*>> members;
    const std::string& group = attribute(node, "pg_name").string_val();
    for (std::size_t other = 0; other < traces.size(); ++other) {
      const chakra::Node* theirs = find(other, [&](const chakra::Node& n) {
        return n.type() == chakra::COMM_COLL_NODE && attribute(n, "pg_name").string_val() == group;
      });
      if (theirs != nullptr) members.emplace_back(other, theirs);
    }
    if (members.size() < group_sizes.at(group)) return false;
    const auto p = static_cast<std::int64_t>(members.size());
    for (const auto& [other, theirs] : members) {
      EXPECT_EQ(comm_size(*theirs), comm_size(node)) << "ranks " << rank << " and " << other << ", " << node.name();
      const std::int64_t type = attribute(*theirs, "comm_type").int64_val();
      EXPECT_EQ(type, attribute(node, "comm_type").int64_val());
      const std::int64_t n = comm_size(node);
      if (type == chakra::ALL_REDUCE) sent[other] += 2 * n / p * (p - 1);
      if (type == chakra::REDUCE_SCATTER || type == chakra::ALL_TO_ALL) sent[other] += n / p * (p - 1);
      if (type == chakra::ALL_GATHER) sent[other] += n * (p - 1);
      if (type == chakra::BROADCAST && attribute(*theirs, "comm_src").int32_val() == static_cast<int>(other)) {
        sent[other] += n * (p - 1);
      }
      if (type == chakra::REDUCE && attribute(*theirs, "comm_dst").int32_val() != static_cast<int>(other)) {
        sent[other] += n;
      }
      done[other].insert(theirs->id());
    }
    return true;
  };
  const auto deliver = [&](std::size_t rank, const chakra::Node& node) {
    EXPECT_EQ(attribute(node, "comm_src").int32_val(), static_cast<int>(rank));
    const auto to = static_cast<std::size_t>(attribute(node, "comm_dst").int32_val());
    const chakra::Node* theirs = find(to, [&](const chakra::Node& n) {
      return n.type() == chakra::COMM_RECV_NODE && attribute(n, "comm_src").int32_val() == static_cast<int>(rank) &&
             attribute(n, "comm_tag").int32_val() == attribute(node, "comm_tag").int32_val();
    });
    if (theirs == nullptr) return false;
    EXPECT_EQ(attribute(*theirs, "comm_dst").int32_val(), static_cast<int>(to));
    EXPECT_EQ(comm_size(*theirs), comm_size(node));
    sent[rank] += comm_size(node);
    done[rank].insert(node.id());
    done[to].insert(theirs->id());
    return true;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t rank = 0; rank < traces.size(); ++rank) {
      for (const chakra::Node& node : traces[rank].nodes) {
        if (!ready(rank, node)) continue;
        if (node.type() == chakra::COMP_NODE) {
          done[rank].insert(node.id());
          moved = true;
        } else if (node.type() == chakra::COMM_COLL_NODE) {
          moved = meet(rank, node) || moved;
        } else if (node.type() == chakra::COMM_SEND_NODE) {
          moved = deliver(rank, node) || moved;
        }
      }
    }
  }
  for (std::size_t rank = 0; rank < traces.size(); ++rank) {
    EXPECT_EQ(done[rank].size(), traces[rank].nodes.size()) << "rank " << rank << " is stuck";
  }
  return sent;
}

TEST(Chakra, EveryFieldOfASmallTrace) {
  Handmade h(2, 4);
  const int pair = h.group("pair", {0, 2});
  const int others = h.group("others", {1, 2, 3});
  const int x = h.buffer("x", 7);
  const int half = h.buffer("half", 5, false, DType::bf16);
  h.kernel(compute, -1, x, "begin").waits = {{3, 1}};  // of the step before: no dependency inside this one
  h.collective(Collective::recv, pair, half, "in", 0).waits = {{0, 0}};
  h.collective(Collective::broadcast, others, x, "all", 2);
  h.kernel(compute, x, x, "end").waits = {{2, 0}, {1, 0}};
  ChakraWriter writer([](const Program&, const Instruction& in) {
    return in.is_collective() ? NodeCost{3.4e-6, 0} : NodeCost{0.6e-6, 56};
  });
  const test::ChakraTrace trace = test::parse_chakra(writer.trace(h.program));

  EXPECT_EQ(trace.metadata.version(), "1.0.0");
  ASSERT_EQ(trace.nodes.size(), 4u);
  for (std::size_t i = 0; i < trace.nodes.size(); ++i) {
    EXPECT_EQ(trace.nodes[i].id(), i);
    EXPECT_TRUE(attribute(trace.nodes[i], "is_cpu_op").has_bool_val());
    EXPECT_FALSE(attribute(trace.nodes[i], "is_cpu_op").bool_val());
  }
  const auto& [begin, in, all, end] = std::tie(trace.nodes[0], trace.nodes[1], trace.nodes[2], trace.nodes[3]);
  EXPECT_EQ(begin.name(), "fill begin");
  EXPECT_EQ(begin.type(), chakra::COMP_NODE);
  EXPECT_THAT(begin.data_deps(), IsEmpty());
  EXPECT_EQ(attribute(begin, "num_ops").int64_val(), 1) << "at least";
  EXPECT_EQ(attribute(begin, "tensor_size").uint64_val(), 56u);
  EXPECT_EQ(in.type(), chakra::COMM_RECV_NODE);
  EXPECT_THAT(in.data_deps(), ElementsAre(0));
  EXPECT_EQ(comm_size(in), 10);
  EXPECT_EQ(attribute(in, "comm_src").int32_val(), 0);
  EXPECT_EQ(attribute(in, "comm_dst").int32_val(), 2);
  EXPECT_EQ(all.type(), chakra::COMM_COLL_NODE);
  EXPECT_THAT(all.data_deps(), ElementsAre(1));
  EXPECT_EQ(attribute(all, "comm_type").int64_val(), chakra::BROADCAST);
  EXPECT_EQ(comm_size(all), 28);
  EXPECT_EQ(attribute(all, "pg_name").string_val(), "2");
  EXPECT_EQ(attribute(all, "comm_src").int32_val(), 3);
  EXPECT_THAT(end.data_deps(), ElementsAre(0, 1, 2));
  EXPECT_EQ(begin.ctrl_deps_size() + in.ctrl_deps_size() + all.ctrl_deps_size() + end.ctrl_deps_size(), 0);

  // 0.6 and 0.6 µs on one stream, 3.4 and 3.4 on the other: each ends at a rounded moment.
  EXPECT_EQ(begin.duration_micros(), 1u);
  EXPECT_EQ(end.duration_micros(), 0u);
  EXPECT_EQ(in.duration_micros(), 3u);
  EXPECT_EQ(all.duration_micros(), 4u);

  EXPECT_EQ(writer.communicator_groups(), "{\n  \"1\": [0, 2],\n  \"2\": [1, 2, 3]\n}\n");
}

TEST(Chakra, EveryCollectiveOverGroupsSendsWhatTheProgramSays) {
  constexpr int num_ranks = 5;
  std::vector<Program> programs;
  for (int rank = 0; rank < num_ranks; ++rank) {
    Handmade h(rank, num_ranks);
    const bool is_odd = rank % 2 == 1;
    const int part = is_odd ? h.group("part", {1, 3}) : h.group("part", {0, 2, 4});
    const int all = h.group("all", {0, 1, 2, 3, 4});
    const int x = h.buffer("x", 60);
    h.kernel(compute, -1, x, "work");
    for (const Collective kind : {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
                                  Collective::broadcast, Collective::reduce, Collective::all_to_all}) {
      h.collective(kind, all, x, "a", 3).waits = {{0, 0}};
      h.collective(kind, part, x, "b", 1);
    }
    programs.push_back(h.program);
  }
  ChakraWriter writer(ten_microseconds());
  std::vector<test::ChakraTrace> traces;
  for (const Program& program : programs) traces.push_back(test::parse_chakra(writer.trace(program)));
  EXPECT_EQ(writer.communicator_groups(), "{\n  \"1\": [0, 2, 4],\n  \"2\": [0, 1, 2, 3, 4],\n  \"3\": [1, 3]\n}\n");
  const std::vector<std::int64_t> sent = execute(traces, {{"1", 3}, {"2", 5}, {"3", 2}});
  for (std::size_t rank = 0; rank < num_ranks; ++rank) {
    EXPECT_EQ(sent[rank], bytes_by_collective(programs[rank]).total()) << "rank " << rank;
  }
}

TEST(Chakra, AReduceSaysWhereItGoes) {
  ChakraWriter writer(ten_microseconds());
  for (int rank = 1; rank < 4; ++rank) {
    Handmade h(rank, 4);
    h.collective(Collective::reduce, h.group("others", {3, 1, 2}), h.buffer("x", 7, false, DType::bf16), "x", 1);
    const test::ChakraTrace trace = test::parse_chakra(writer.trace(h.program));
    ASSERT_EQ(trace.nodes.size(), 1u);
    EXPECT_EQ(attribute(trace.nodes[0], "comm_type").int64_val(), chakra::REDUCE);
    EXPECT_EQ(static_cast<int>(chakra::REDUCE), 1) << "as the format has it";
    EXPECT_EQ(comm_size(trace.nodes[0]), 14);
    EXPECT_EQ(attribute(trace.nodes[0], "comm_dst").int32_val(), 1);
  }
}

TEST(Chakra, SendsAndCollectivesKeepTheOrderOfTheList) {
  Handmade h(0, 2);
  const int pair = h.group("pair", {0, 1});
  const int x = h.buffer("x", 4);
  h.collective(Collective::all_reduce, pair, x, "a");
  h.collective(Collective::recv, pair, x, "b", 1).stream = compute;
  h.kernel(compute, x, x, "c");
  h.collective(Collective::send, pair, x, "d", 1).stream = compute;
  h.collective(Collective::all_gather, pair, x, "e");
  ChakraWriter writer(ten_microseconds());
  const test::ChakraTrace trace = test::parse_chakra(writer.trace(h.program));
  ASSERT_EQ(trace.nodes.size(), 5u);
  for (const std::size_t first_of_its_kind : {0u, 1u, 2u}) {
    EXPECT_THAT(trace.nodes[first_of_its_kind].ctrl_deps(), IsEmpty());
  }
  EXPECT_THAT(trace.nodes[3].ctrl_deps(), ElementsAre(0));
  EXPECT_THAT(trace.nodes[4].ctrl_deps(), ElementsAre(3));
}

TEST(Chakra, MembersOfAnUnevenGatherAgree) {
  ChakraWriter writer(ten_microseconds());
  for (int rank = 0; rank < 3; ++rank) {
    Handmade h(rank, 3);
    h.collective(Collective::all_gather, h.group("all", {0, 1, 2}), h.buffer("x", 7), "parameters");
    EXPECT_EQ(comm_size(test::parse_chakra(writer.trace(h.program)).nodes[0]), 4 * 3) << "chunks of 3, 3 and 1";
  }
}

TEST(Chakra, MessagesOfTwoGroupsBetweenTheSameRanks) {
  // Rank 0 sends on "a" and "b" and receives on "a"; rank 1 lists "b" first, on a stream of its own.
  std::vector<test::ChakraTrace> traces;
  ChakraWriter writer(ten_microseconds());
  for (int rank = 0; rank < 2; ++rank) {
    Handmade h(rank, 2);
    h.program.streams.emplace_back("backwards");
    const int a = h.group("a", {0, 1});
    const int b = h.group("b", {0, 1});
    const auto message = [&](bool outwards, int group, std::int64_t elements) {
      const Collective kind = outwards == (rank == 0) ? Collective::send : Collective::recv;
      h.collective(kind, group, h.buffer("m", elements), "m", 1 - rank).stream = outwards ? communication : 2;
    };
    if (rank == 1) message(true, b, 3);
    message(true, a, 1);
    message(true, a, 2);
    if (rank == 0) message(true, b, 3);
    for (Instruction& in : h.program.body) {
      if (in.group == b) in.stream = compute;
    }
    message(false, a, 5);
    traces.push_back(test::parse_chakra(writer.trace(h.program)));
  }
  EXPECT_THAT(execute(traces, {}), ElementsAre(4 * 6, 4 * 5));
}

}  // namespace
}  // namespace strata::test_chakra
