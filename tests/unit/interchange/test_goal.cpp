/// @file
/// GOAL schedules read back and executed: every send meets its receive, nothing locks up,
/// and each rank sends what its Program says.

#include <gmock/gmock.h>

#include <map>
#include <set>

#include "interchange/goal.hpp"
#include "unit/interchange/goal_schedule.hpp"
#include "unit/ir/program/handmade_program.hpp"

namespace strata::test_goal {
namespace {

/// Runs the schedule, messages as rendezvous. @return bytes sent by rank; fails where something is left over.
std::vector<std::int64_t> execute(const test::GoalSchedule& schedule) {
  std::vector<std::set<std::string>> done(schedule.size());
  std::vector<std::int64_t> sent(schedule.size());
  const auto ready = [&](std::size_t rank, const std::string& label) {
    if (done[rank].contains(label)) return false;
    for (const std::string& b : schedule[rank].at(label).before) {
      if (!done[rank].contains(b)) return false;
    }
    return true;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t rank = 0; rank < schedule.size(); ++rank) {
      for (const auto& [label, op] : schedule[rank]) {
        if (!ready(rank, label)) continue;
        if (op.kind == "calc") {
          done[rank].insert(label);
          moved = true;
        } else if (op.kind == "send") {
          const auto peer = static_cast<std::size_t>(op.peer);
          for (const auto& [theirs, other] : schedule[peer]) {
            if (other.kind != "recv" || other.peer != static_cast<int>(rank) || other.tag != op.tag) continue;
            if (!ready(peer, theirs)) continue;
            EXPECT_EQ(other.amount, op.amount) << "rank " << rank << " " << label;
            done[rank].insert(label);
            done[peer].insert(theirs);
            sent[rank] += op.amount;
            moved = true;
            break;
          }
        }
      }
    }
  }
  for (std::size_t rank = 0; rank < schedule.size(); ++rank) {
    EXPECT_EQ(done[rank].size(), schedule[rank].size()) << "rank " << rank << " is stuck";
  }
  return sent;
}

double ten_nanoseconds(const Program&, const Instruction&) { return 1e-8; }

TEST(Goal, EveryCollectiveOverGroupsAndUnevenSizes) {
  constexpr int num_ranks = 5;
  for (const std::int64_t elements : {1, 4, 5, 17, 1000}) {
    std::vector<Program> programs;
    for (int rank = 0; rank < num_ranks; ++rank) {
      Handmade h(rank, num_ranks);
      const int all = h.group("all", {0, 1, 2, 3, 4});
      const bool is_odd = rank % 2 == 1;
      const int part = is_odd ? h.group("part", {1, 3}) : h.group("part", {0, 2, 4});
      const int x = h.buffer("x", elements);
      const int five = h.buffer("five", 5 * elements);
      h.kernel(compute, -1, x, "work");
      for (const Collective kind :
           {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather, Collective::broadcast,
            Collective::reduce,
            Collective::all_reduce}) {  // the group's last member is a root, and more comes after it
        h.collective(kind, all, x, "a", 3).waits = {{0, 0}};
        h.collective(kind, part, x, "b", 1);
      }
      h.collective(Collective::all_to_all, all, five, "c");
      Instruction& together = h.collective(Collective::broadcast, all, x, "d");
      together.inputs = together.outputs = {h.whole(x), h.whole(five)};
      together.roots = {4, 2};
      h.kernel(compute, x, x, "after").waits = {{2, 0}};
      programs.push_back(h.program);
    }
    const std::vector<std::int64_t> sent = execute(test::parse_goal(to_goal(programs, ten_nanoseconds)));
    for (int rank = 0; rank < num_ranks; ++rank) {
      EXPECT_EQ(sent[static_cast<std::size_t>(rank)],
                bytes_by_collective(programs[static_cast<std::size_t>(rank)]).total())
          << "rank " << rank << ", " << elements << " elements";
    }
  }
}

TEST(Goal, AReduceIsAMessageFromEveryOtherMember) {
  std::vector<Program> programs;
  for (int rank = 0; rank < 3; ++rank) {
    Handmade h(rank, 3);
    h.collective(Collective::reduce, h.group("all", {2, 0, 1}), h.buffer("x", 5, true), "x", 1);  // to rank 0
    programs.push_back(h.program);
  }
  EXPECT_EQ(to_goal(programs, ten_nanoseconds),
            "num_ranks 3\n\n"
            "rank 0 {\nl1: recv 20b from 2 tag 0\nl2: recv 20b from 1 tag 0\n"
            "l3: calc 0\nl3 requires l1\nl3 requires l2\n}\n\n"
            "rank 1 {\nl1: send 20b to 0 tag 0\n}\n\n"
            "rank 2 {\nl1: send 20b to 0 tag 0\n}\n\n");
}

TEST(Goal, MessagesKeepTheirOrder) {
  std::vector<Program> programs;
  for (int rank = 0; rank < 2; ++rank) {
    Handmade h(rank, 2);
    const int pair = h.group("pair", {0, 1});
    const int small = h.buffer("small", 3);
    const int large = h.buffer("large", 30);
    for (const int x : {small, large, small}) {
      h.collective(rank == 0 ? Collective::send : Collective::recv, pair, x, "m", 1 - rank);
    }
    programs.push_back(h.program);
  }
  EXPECT_EQ(execute(test::parse_goal(to_goal(programs, ten_nanoseconds))), (std::vector<std::int64_t>{4 * 36, 0}));
}

TEST(Goal, MessagesRequireTheKernelsThemselves) {
  // A calculation between them, even of no length, would stand in line for the processor behind the next kernel.
  std::vector<Program> programs;
  for (int rank = 0; rank < 2; ++rank) {
    Handmade h(rank, 2);
    const int pair = h.group("pair", {0, 1});
    const int x = h.buffer("x", 3);
    h.kernel(compute, -1, x, "before");
    h.collective(rank == 0 ? Collective::send : Collective::recv, pair, x, "m", 1 - rank).waits = {{0, 0}};
    h.collective(Collective::all_reduce, pair, x, "g");
    h.kernel(compute, x, x, "after").waits = {{2, 0}};
    programs.push_back(h.program);
  }
  const std::string text = to_goal(programs, ten_nanoseconds);
  EXPECT_THAT(execute(test::parse_goal(text)), testing::ElementsAre(12 + 12, 12));
  EXPECT_EQ(text.substr(0, text.find("rank 1")),
            "num_ranks 2\n\nrank 0 {\n"
            "l1: calc 10\n"
            "l2: send 12b to 1 tag 0\nl2 requires l1\n"
            "l3: send 4b to 1 tag 100000\nl3 requires l2\n"  // what the other one reduces
            "l4: recv 8b from 1 tag 100000\nl4 requires l2\n"
            "l5: calc 0\nl5 requires l3\nl5 requires l4\n"
            "l6: send 8b to 1 tag 100001\nl6 requires l5\n"
            "l7: recv 4b from 1 tag 100001\nl7 requires l5\n"
            "l8: calc 0\nl8 requires l6\nl8 requires l7\n"
            "l9: calc 10\nl9 requires l1\nl9 requires l8\n"
            "}\n\n");
}

TEST(Goal, TextOfASmallSchedule) {
  Handmade h(0, 1);
  const int x = h.buffer("x", 3);
  h.kernel(compute, -1, x, "a");
  h.kernel(compute, x, x, "b");
  EXPECT_EQ(to_goal({h.program}, ten_nanoseconds),
            "num_ranks 1\n\nrank 0 {\nl1: calc 10\nl2: calc 10\nl2 requires l1\n}\n\n");
}

}  // namespace
}  // namespace strata::test_goal
