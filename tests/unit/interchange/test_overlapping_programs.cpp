/// @file
/// Small Programs whose steps overlap, exported as GOAL and as Chakra and read back: an export orders what the Programs
/// order and nothing else, its messages meet in the step that they belong to, and executed it ends when the simulator
/// says. What locks up, locks up in both formats.

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.hpp"
#include "interchange/chakra.hpp"
#include "interchange/goal.hpp"
#include "ir/program/repetition.hpp"
#include "sim/simulate.hpp"
#include "support/overlapping_programs.hpp"
#include "unit/interchange/chakra_trace.hpp"
#include "unit/interchange/goal_schedule.hpp"
#include "unit/sim/fixed_costs.hpp"

namespace strata::test_overlapping_programs {
namespace {

/// Rank 1 computes longer, so that which rank waits for which is seen in times.
double kernel_seconds(const Program& program, const Instruction&) { return program.rank == 0 ? 2.0 : 3.0; }
constexpr double slowdown_of_rank_1 = 1.5;

/// An operation of an export.
struct Operation {
  double seconds = 0.0;
  std::string meets;          ///< equal for those of both ranks that begin together; empty: it begins alone
  std::vector<int> before{};  ///< operations of its rank
  int instance = 0;           ///< of the rank's instances: what it is a part of
};
/// Of a rank. The last operation of an instance is its end.
using Operations = std::vector<Operation>;

/// What runs of a body for steps [0, num_steps), in order.
std::vector<Instance> instances_of(const Program& program, std::int64_t num_steps) {
  std::vector<Instance> instances;
  for (std::int64_t r = 0; r <= num_steps + depth(program); ++r) {
    for (int i = 0; i < static_cast<int>(program.body.size()); ++i) {
      const std::int64_t step = training_step(program, program.body[static_cast<std::size_t>(i)], r);
      if (step >= 0 && step < num_steps) instances.push_back({i, r});
    }
  }
  return instances;
}
const Instruction& instruction_of(const Program& program, const Instance& instance) {
  return program.body[static_cast<std::size_t>(instance.instruction)];
}

using Relation = std::vector<std::set<int>>;  ///< by instance: all that come before it

/// What the Program itself says: streams are in order over all repetitions, and a wait with lag is for an earlier one.
Relation order_of(const Program& program, const std::vector<Instance>& instances) {
  Relation order(instances.size());
  for (std::size_t b = 0; b < instances.size(); ++b) {
    const Instruction& in = instruction_of(program, instances[b]);
    for (std::size_t a = 0; a < b; ++a) {
      const bool is_waited_for = std::ranges::any_of(in.waits, [&](const Wait& wait) {
        return Instance{wait.instruction, instances[b].repetition - wait.lag} == instances[a];
      });
      if (!is_waited_for && instruction_of(program, instances[a]).stream != in.stream) continue;
      order[b].insert(static_cast<int>(a));
      order[b].insert(order[a].begin(), order[a].end());
    }
  }
  return order;
}

/// Every operation of an instance must come after the same earlier ones.
Relation order_of(const Operations& operations, std::size_t num_instances) {
  std::vector<std::set<int>> operations_before;
  std::vector<int> end_of(num_instances, -1);
  for (std::size_t o = 0; o < operations.size(); ++o) {
    end_of[static_cast<std::size_t>(operations[o].instance)] = static_cast<int>(o);
    std::set<int>& all = operations_before.emplace_back();
    for (const int before : operations[o].before) {
      const std::set<int> further = operations_before.at(static_cast<std::size_t>(before));
      all.insert(before);
      all.insert(further.begin(), further.end());
    }
  }
  Relation order(num_instances);
  std::vector<bool> is_known(num_instances, false);
  for (std::size_t o = 0; o < operations.size(); ++o) {
    const auto instance = static_cast<std::size_t>(operations[o].instance);
    std::set<int> before;
    for (std::size_t other = 0; other < num_instances; ++other) {
      if (other != instance && operations_before[o].contains(end_of[other])) before.insert(static_cast<int>(other));
    }
    if (is_known[instance]) {
      EXPECT_EQ(before, order[instance]) << "operation " << o;
    }
    order[instance] = before;
    is_known[instance] = true;
    if (static_cast<int>(o) == end_of[instance]) continue;
    EXPECT_TRUE(operations_before[static_cast<std::size_t>(end_of[instance])].contains(static_cast<int>(o)))
        << "the end of instance " << instance << " is not after its operation " << o;
  }
  return order;
}

/// A message is one operation at both ends, so is a broadcast between two ranks. An all-reduce is a send and a receive,
/// their end, and the same once more.
int num_goal_operations(const Instruction& in) {
  return in.is_collective() && in.collective == Collective::all_reduce ? 6 : 1;
}

/// Messages take no time.
std::vector<Operations> exported_as_goal(const std::vector<Program>& programs,
                                         const std::vector<std::vector<Instance>>& instances,
                                         const std::vector<Program>& lists) {
  const test::GoalSchedule schedule = test::parse_goal(to_goal(lists, kernel_seconds));
  EXPECT_EQ(schedule.size(), programs.size());
  std::vector<Operations> exported(programs.size());
  for (std::size_t rank = 0; rank < programs.size(); ++rank) {
    int label = 0;
    for (std::size_t i = 0; i < instances[rank].size(); ++i) {
      const int num_operations = num_goal_operations(instruction_of(programs[rank], instances[rank][i]));
      for (int part = 0; part < num_operations; ++part) {
        const test::GoalOperation& read = schedule[rank].at("l" + std::to_string(++label));
        Operation& op = exported[rank].emplace_back();
        op.instance = static_cast<int>(i);
        op.seconds = read.kind == "calc" ? static_cast<double>(read.amount) * 1e-9 : 0.0;
        const std::string here = std::to_string(rank), there = std::to_string(read.peer);
        const std::string tag = " " + std::to_string(read.tag) + " " + std::to_string(read.amount);
        if (read.kind == "send") op.meets = here + " " + there + tag;
        if (read.kind == "recv") op.meets = there + " " + here + tag;
        for (const std::string& before : read.before) op.before.push_back(std::stoi(before.substr(1)) - 1);
      }
    }
    EXPECT_EQ(static_cast<std::size_t>(label), schedule[rank].size()) << "more than what runs";
  }
  return exported;
}

/// @param keeps_issue_order as ASTRA-sim has it: with the control dependencies between sends and collectives.
std::vector<Operations> exported_as_chakra(const std::vector<Program>& lists, bool keeps_issue_order) {
  ChakraWriter writer([](const Program& program, const Instruction& in) {
    return NodeCost{in.is_collective() ? 3.0 : kernel_seconds(program, in), 0};
  });
  std::vector<Operations> exported(lists.size());
  for (std::size_t rank = 0; rank < lists.size(); ++rank) {
    std::map<std::string, int> num_collectives_of_group;
    for (const chakra::Node& node : test::parse_chakra(writer.trace(lists[rank])).nodes) {
      const auto number = [&](const char* name) { return std::to_string(test::attribute(node, name).int32_val()); };
      Operation& op = exported[rank].emplace_back();
      op.instance = static_cast<int>(node.id());
      op.seconds = static_cast<double>(node.duration_micros()) * 1e-6;
      if (node.type() == chakra::COMM_COLL_NODE) {
        const std::string group = test::attribute(node, "pg_name").string_val();
        op.meets = group + " " + std::to_string(num_collectives_of_group[group]++) + " " +
                   std::to_string(test::attribute(node, "comm_type").int64_val());
      } else if (node.type() != chakra::COMP_NODE) {
        op.meets = "from " + number("comm_src") + " to " + number("comm_dst") + " tag " + number("comm_tag");
      }
      op.before.assign(node.data_deps().begin(), node.data_deps().end());
      if (keeps_issue_order) op.before.insert(op.before.end(), node.ctrl_deps().begin(), node.ctrl_deps().end());
    }
  }
  return exported;
}

constexpr double never = -1.0;

/// When each operation ends: after all that it comes after, together with what it meets. Where it waits for ever:
/// never.
std::vector<std::vector<double>> ends_of(const std::vector<Operations>& exported) {
  std::map<std::string, std::vector<std::pair<std::size_t, std::size_t>>> meetings;
  std::vector<std::vector<double>> ends;
  for (std::size_t rank = 0; rank < exported.size(); ++rank) {
    ends.emplace_back(exported[rank].size(), never);
    for (std::size_t o = 0; o < exported[rank].size(); ++o) {
      if (const std::string& meets = exported[rank][o].meets; !meets.empty()) meetings[meets].emplace_back(rank, o);
    }
  }
  const auto ready = [&](std::size_t rank, std::size_t o) {
    double seconds = 0.0;
    for (const int before : exported[rank][o].before) {
      const double end = ends[rank].at(static_cast<std::size_t>(before));
      if (end == never) return never;
      seconds = std::max(seconds, end);
    }
    return seconds;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t rank = 0; rank < exported.size(); ++rank) {
      for (std::size_t o = 0; o < exported[rank].size(); ++o) {
        const Operation& op = exported[rank][o];
        double begin = ready(rank, o);
        if (ends[rank][o] != never || begin == never) continue;
        if (!op.meets.empty()) {
          const auto& both = meetings.at(op.meets);
          if (both.size() != 2) continue;
          const double other = std::min(ready(both[0].first, both[0].second), ready(both[1].first, both[1].second));
          if (other == never) continue;
          begin = std::max(ready(both[0].first, both[0].second), ready(both[1].first, both[1].second));
        }
        ends[rank][o] = begin + op.seconds;
        moved = true;
      }
    }
  }
  return ends;
}

bool all_end(const std::vector<Operations>& exported) {
  return std::ranges::none_of(ends_of(exported),
                              [](const auto& of_rank) { return std::ranges::find(of_rank, never) != of_rank.end(); });
}

struct Exported {
  std::vector<Program> programs;
  std::int64_t num_steps = 0;
  std::vector<std::vector<Instance>> instances;  ///< by rank
  std::vector<Operations> goal, chakra, chakra_in_issue_order;
};

Exported exported(const test::OverlapCase& one) {
  Exported result{.programs = {one.program(0), one.program(1)}};
  const StepRange steps = steps_that_meet(result.programs);
  result.num_steps = steps.last + 1;
  std::vector<Program> lists;
  for (const Program& program : result.programs) {
    result.instances.push_back(instances_of(program, result.num_steps));
    lists.push_back(in_one_list(program, steps));
  }
  result.goal = exported_as_goal(result.programs, result.instances, lists);
  result.chakra = exported_as_chakra(lists, /*keeps_issue_order=*/false);
  result.chakra_in_issue_order = exported_as_chakra(lists, /*keeps_issue_order=*/true);
  return result;
}

/// Those that export at all: what verify() of a rank refuses is no Program.
std::vector<test::OverlapCase> exportable(bool locks_up) {
  std::vector<test::OverlapCase> cases = test::overlap_cases();
  std::erase_if(cases, [&](const auto& one) { return one.refusal != (locks_up ? "deadlock" : ""); });
  return cases;
}

TEST(OverlappingProgramsExported, OrderWhatTheProgramsOrderAndNothingElse) {
  for (const test::OverlapCase& one : exportable(/*locks_up=*/false)) {
    SCOPED_TRACE(one.name);
    const Exported e = exported(one);
    for (std::size_t rank = 0; rank < e.programs.size(); ++rank) {
      SCOPED_TRACE(rank);
      const Relation expected = order_of(e.programs[rank], e.instances[rank]);
      ASSERT_EQ(e.chakra[rank].size(), e.instances[rank].size());
      EXPECT_EQ(order_of(e.goal[rank], expected.size()), expected);
      EXPECT_EQ(order_of(e.chakra[rank], expected.size()), expected);
    }
  }
}

TEST(OverlappingProgramsExported, MeetInTheStepThatTheyBelongTo) {
  for (const test::OverlapCase& one : exportable(/*locks_up=*/false)) {
    SCOPED_TRACE(one.name);
    const Exported e = exported(one);
    for (const std::vector<Operations>& format : {e.goal, e.chakra}) {
      std::map<std::string, std::vector<std::int64_t>> steps;  // of those that meet
      for (std::size_t rank = 0; rank < format.size(); ++rank) {
        for (const Operation& op : format[rank]) {
          const Instance& instance = e.instances[rank].at(static_cast<std::size_t>(op.instance));
          const Instruction& in = instruction_of(e.programs[rank], instance);
          if (op.meets.empty()) continue;
          EXPECT_TRUE(in.is_collective());
          steps[op.meets].push_back(training_step(e.programs[rank], in, instance.repetition));
        }
      }
      EXPECT_FALSE(steps.empty());
      for (const auto& [meets, of_both] : steps) {
        ASSERT_EQ(of_both.size(), 2u) << meets;
        EXPECT_EQ(of_both[0], of_both[1]) << meets;
      }
    }
  }
}

/// GOAL with transfers of no time, for it has no time for them; Chakra with one.
TEST(OverlappingProgramsExported, EndEachStepWhenTheSimulatorDoes) {
  for (const test::OverlapCase& one : exportable(/*locks_up=*/false)) {
    SCOPED_TRACE(one.name);
    const Exported e = exported(one);
    for (const bool is_goal : {true, false}) {
      test::FixedCosts costs;
      costs.kernels = {{"kernel", 2.0}};
      for (int kind = 0; kind < num_collectives; ++kind) {
        costs.collectives[static_cast<Collective>(kind)] = is_goal ? 0.0 : 3.0;
      }
      const SimulationResult simulated =
          simulate(unfolded(e.programs, 2), costs,
                   {.num_steps = static_cast<int>(e.num_steps), .stragglers = {{1, slowdown_of_rank_1}}});
      const std::vector<Operations>& format = is_goal ? e.goal : e.chakra;
      const std::vector<std::vector<double>> ends = ends_of(format);
      for (std::size_t rank = 0; rank < format.size(); ++rank) {
        std::vector<double> end_of_step(static_cast<std::size_t>(e.num_steps), 0.0);
        for (std::size_t o = 0; o < format[rank].size(); ++o) {
          ASSERT_NE(ends[rank][o], never) << "operation " << o << " of rank " << rank;
          const Instance& instance = e.instances[rank][static_cast<std::size_t>(format[rank][o].instance)];
          const Instruction& in = instruction_of(e.programs[rank], instance);
          double& end = end_of_step[static_cast<std::size_t>(training_step(e.programs[rank], in, instance.repetition))];
          end = std::max(end, ends[rank][o]);
        }
        double exported_end = 0.0, simulated_end = 0.0;
        for (std::size_t step = 0; step < end_of_step.size(); ++step) {
          exported_end = std::max(exported_end, end_of_step[step]);
          simulated_end += simulated.steps[step][rank].step_seconds;
          EXPECT_NEAR(exported_end, simulated_end, 1e-6)  // simulated moments are whole nanoseconds
              << (is_goal ? "GOAL" : "Chakra") << ", rank " << rank << ", step " << step;
        }
      }
    }
    EXPECT_TRUE(all_end(e.chakra_in_issue_order)) << "in the order of issue";
  }
}

TEST(OverlappingProgramsExported, LockUpWhereTheProgramsDo) {
  for (const test::OverlapCase& one : exportable(/*locks_up=*/true)) {
    const Exported e = exported(one);
    EXPECT_FALSE(all_end(e.goal)) << one.name;
    EXPECT_FALSE(all_end(e.chakra)) << one.name;
  }
}

/// An export of one repetition alone would lose every wait with lag.
TEST(OverlappingProgramsExported, AreRefusedAsTheyStand) {
  const auto refusal_of = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const InternalError& error) {
      return error.what();
    }
    return "";
  };
  for (const test::OverlapCase& one : exportable(/*locks_up=*/false)) {
    const std::vector<Program> programs = {one.program(0), one.program(1)};
    EXPECT_THAT(refusal_of([&] { to_goal(programs, kernel_seconds); }),
                testing::HasSubstr("steps that overlap are written as one list"))
        << one.name;
    ChakraWriter writer([](const Program&, const Instruction&) { return NodeCost{}; });
    EXPECT_THAT(refusal_of([&] { writer.trace(programs[0]); }),
                testing::HasSubstr("steps that overlap are written as one list"))
        << one.name;
  }
}

}  // namespace
}  // namespace strata::test_overlapping_programs
