/// @file
/// Cyclic data parallelism whose parameters walk (implementation = zero): who has what when, and what of it is in
/// Programs.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "partition/walking_parameters.hpp"
#include "unit/lower/equal_layers.hpp"
#include "unit/lower/planned.hpp"

namespace strata::test_walking_parameters {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

Plan walking_plan(int n, const std::string& fresh, DType compute = DType::f32) {
  Plan plan;
  plan.strategy = "cyclic";
  plan.mesh = {.nodes = 1, .ranks_per_node = n, .axes = {{"stage", 1}, {"micro_batch", n}}, .placement = "zero-ring"};
  plan.operators = {OperatorRule{.match = "*", .state = StateFactors{.walks = true}}};
  plan.stages.count = n;
  plan.schedule = {.kind = ScheduleKind::cyclic, .micro_batches = n, .fresh = fresh};
  plan.global_batch = 2 * n;
  plan.optimizer = {.kind = "sgd", .momentum = 0.5};
  plan.dtypes.compute = compute;
  return plan;
}

/// v1, v2, and tables between them.
std::vector<FreshTable> some_tables(int n) {
  const FreshTable most = freshest(n, n);
  std::vector<FreshTable> tables = {never_fresh(n, n), most};
  for (std::uint64_t t = 0; t < 6; ++t) {
    tables.push_back(most);
    std::uint64_t cell = 0;
    for (std::string& row : tables.back()) {
      for (char& digit : row) digit = RandomStream{.seed = 9, .stream = t}.uniform(cell++) < 0.5 ? '0' : digit;
    }
  }
  return tables;
}

std::string joined(const FreshTable& table) { return fmt::format("{}", fmt::join(table, " ")); }

/// Who is not the owner has the parameters of each visit once, from the owner or from the rank before it, which reads
/// the same version.
TEST(WalkingParameters, ComeToEveryReaderFromWhoHasThem) {
  for (const int n : {2, 3, 4, 5, 8}) {
    for (const FreshTable& fresh : some_tables(n)) {
      SCOPED_TRACE(joined(fresh));
      std::vector<ParameterWalk> walks;
      for (int rank = 0; rank < n; ++rank) walks.push_back(parameter_walk(fresh, rank));
      int num_messages = 0;
      for (const ParameterWalk& walk : walks) {
        const auto rank = static_cast<std::size_t>(walk.rank);
        for (int v = 0; v < 2 * n - 1; ++v) {
          const ParameterWalk::Visit& visit = walk.visits[static_cast<std::size_t>(v)];
          const auto stage = static_cast<std::size_t>(visit.stage);
          ASSERT_EQ(walk.visit_of(visit.stage, visit.backward), v);
          EXPECT_EQ(visit.from < 0, visit.stage == walk.own_stage());
          if (visit.from < 0) continue;
          ++num_messages;
          const ParameterWalk& sender = walks[static_cast<std::size_t>(visit.from)];
          const bool goes_on = sender.visits[static_cast<std::size_t>(v)].goes_on && sender.rank == walk.rank - 1;
          EXPECT_TRUE(!goes_on || fresh[rank - 1][stage] == fresh[rank][stage]);
          const ParameterWalk::Departure departure{walk.rank, v, fresh[rank][stage] == '1'};
          EXPECT_EQ(std::ranges::count(sender.departures, departure), goes_on ? 0 : 1);
        }
      }
      for (const ParameterWalk& walk : walks) {
        num_messages -= static_cast<int>(walk.departures.size());
        num_messages -= static_cast<int>(std::ranges::count(walk.visits, true, &ParameterWalk::Visit::goes_on));
      }
      EXPECT_EQ(num_messages, 0) << "as many are sent";
    }
  }
}

/// What is on a rank at one time step has slots of its own: what is read there, what comes for the next time step, and
/// what goes on from the one before. Three are enough, two on the last rank, which hands nothing on.
TEST(WalkingParameters, ThreeSlotsAreEnough) {
  for (const int n : {2, 3, 4, 5, 8, 16}) {
    for (const FreshTable& fresh : some_tables(n)) {
      for (int rank = 0; rank < n; ++rank) {
        const ParameterWalk walk = parameter_walk(fresh, rank);
        const std::vector<std::vector<int>> slots = slots_of_visits(walk, 2);
        std::map<int, std::multiset<int>> at_time;
        int num_slots = 0;
        for (int step = 0; step < 2; ++step) {
          for (std::size_t v = 0; v < walk.visits.size(); ++v) {
            const ParameterWalk::Visit& visit = walk.visits[v];
            const int slot = slots[static_cast<std::size_t>(step)][v];
            EXPECT_EQ(slot < 0, visit.from < 0);
            if (slot < 0) continue;
            num_slots = std::max(num_slots, slot + 1);
            const int begin = visit.backward ? 2 * n - 1 - visit.stage : visit.stage;
            const int end = (visit.stage + 1 == n ? n : begin) + (visit.goes_on ? 1 : 0);
            for (int time = begin - 1; time <= end; ++time) {
              at_time[(time + 2 * n * step + 4 * n) % (4 * n)].insert(slot);
            }
          }
        }
        for (const auto& [time, used] : at_time) {
          EXPECT_EQ(std::set(used.begin(), used.end()).size(), used.size()) << n << " ranks, rank " << rank;
        }
        EXPECT_LE(num_slots, rank + 1 == n ? 2 : 3) << joined(fresh) << ", rank " << rank;
      }
    }
  }
}

TEST(WalkingParameters, OrdersAndProgramsVerify) {
  for (const int n : {2, 3, 4}) {
    const ModelGraph graph = build_model({.name = "mlp", .widths = {16, 24, 16, 24, 16, 10}});
    for (const FreshTable& fresh : some_tables(n)) {
      for (const DType compute : {DType::f32, DType::bf16}) {
        Plan plan = walking_plan(n, joined(fresh), compute);
        plan.recompute = compute == DType::f32 ? Recompute::none : Recompute::block;
        SCOPED_TRACE(joined(fresh));
        ASSERT_NO_THROW(verify(step_orders(plan, graph)));
        ASSERT_NO_THROW(verify(all_ranks(plan, graph, no_workspace)));
      }
    }
  }
}

/// A rank has its own stage's parameters, twice where the last step's are read too, the optimizer's states of these,
/// and room for three other stages; of N stages that together are 2N versions with v1 and 2N - 1 with v2.
TEST(WalkingParameters, ARankHoldsItsOwnStageAndThreeSlots) {
  for (const int n : {2, 3, 4, 8}) {
    const ModelGraph graph = equal_layers(n);
    for (const char* fresh : {"none", "v2"}) {
      std::int64_t versions = 0;
      for (const Program& program : all_ranks(walking_plan(n, fresh), graph, no_workspace)) {
        SCOPED_TRACE(fmt::format("{} of {}, {}", program.rank, n, fresh));
        // Of the last stage, rank 0's, every rank reads the step's own parameters with v2.
        EXPECT_EQ(held_bytes(program, Category::parameter),
                  (program.rank == 0 && std::string(fresh) == "v2" ? 1 : 2) * layer_bytes);
        EXPECT_EQ(held_bytes(program, Category::optimizer), layer_bytes);
        EXPECT_LE(held_bytes(program, Category::communication), 3 * layer_bytes);
        // Sums of three stages on their way, and the whole one, which the last rank makes itself.
        EXPECT_LE(held_bytes(program, Category::gradient), (program.rank + 1 == n ? 3 : 4) * layer_bytes);
        versions += held_bytes(program, Category::parameter) / layer_bytes;
      }
      EXPECT_EQ(versions, std::string(fresh) == "v2" ? 2 * n - 1 : 2 * n);
    }
  }
}

/// With P bytes of parameters in N equal stages the ranks together send, a step,
/// - sums: (N-1) P from rank to rank and P less the last rank's own stage to the owners;
/// - parameters: N-1 messages a stage for forwards, which serve the last stage's backwards too, and as many for
///   backwards, but of the first stage, whose backward reads no weight because its input has no gradient.
/// Nothing else: no collective is in the body.
TEST(WalkingParameters, BytesAreThoseOfTwoWaysAroundTheRing) {
  for (const int n : {2, 3, 4, 8}) {
    const ModelGraph graph = equal_layers(n);
    for (const char* fresh : {"none", "v2"}) {
      std::int64_t sums = 0, parameters = 0;
      for (const Program& program : all_ranks(walking_plan(n, fresh), graph, no_workspace)) {
        std::int64_t of_rank = 0;
        for (const Instruction& in : program.body) {
          if (!in.is_collective()) continue;
          ASSERT_TRUE(in.collective == Collective::send || in.collective == Collective::recv) << in.name;
          (in.phase == Phase::reduce ? sums : parameters) += bytes_sent(program, in);
          of_rank += bytes_sent(program, in);
        }
        EXPECT_EQ(bytes_by_collective(program).total(), of_rank / program.steps_per_body);
      }
      constexpr int steps = 2;  // of a body
      EXPECT_EQ(sums, steps * (n * n - 1) * layer_bytes) << n << ", " << fresh;
      EXPECT_EQ(parameters, steps * 2 * (n - 1) * (n - 1) * layer_bytes) << n << ", " << fresh;
    }
  }
}

/// Beside ZeRO-3 of the same model, batch and ranks, which holds 1/N of everything and gathers a layer at a time: as
/// many states of the optimizer and at most one more version of 1/N of the parameters; less than data parallelism has.
TEST(WalkingParameters, ARankHasWhatZero3HasAndOneMoreVersion) {
  constexpr int n = 8;
  const ModelGraph graph = equal_layers(n);
  Plan base = asked(2 * n, n);
  base.optimizer = {.kind = "sgd", .momentum = 0.5};
  const std::vector<Program> zero3 = all_ranks(planned(find_planner("zero3"), graph, base), graph, no_workspace);
  const std::vector<Program> ddp = all_ranks(planned(find_planner("ddp"), graph, base), graph, no_workspace);
  for (const Program& program : all_ranks(walking_plan(n, "v2"), graph, no_workspace)) {
    EXPECT_EQ(held_bytes(program, Category::optimizer), held_bytes(zero3.front(), Category::optimizer));
    EXPECT_LE(held_bytes(program, Category::parameter), 2 * held_bytes(zero3.front(), Category::parameter));
    EXPECT_LT(program.arena_bytes, ddp.front().arena_bytes);
  }
}

std::string complaint(const auto& what) {
  try {
    verify(what);
  } catch (const InternalError& error) {
    return error.what();
  }
  return "";
}

/// @p program without instruction @p index of its body, which allocates and frees nothing.
Program without(Program program, int index) {
  program.body.erase(program.body.begin() + index);
  for (Instruction& in : program.body) {
    std::erase_if(in.waits, [&](const Wait& wait) { return wait.instruction == index; });
    for (Wait& wait : in.waits) wait.instruction -= wait.instruction > index ? 1 : 0;
  }
  return program;
}

/// A message that is left out is named, or those that wait for it.
TEST(WalkingParameters, AMessageThatIsLeftOutIsNamed) {
  const std::vector<Program> programs = all_ranks(walking_plan(3, "v2"), equal_layers(3), no_workspace);
  int num_messages = 0;
  for (std::size_t rank = 0; rank < programs.size(); ++rank) {
    const std::vector<Instruction>& body = programs[rank].body;
    for (std::size_t i = 0; i < body.size(); ++i) {
      if (!body[i].is_collective() || !body[i].allocs.empty() || !body[i].frees.empty()) continue;
      std::vector<Program> others = programs;
      others[rank] = without(programs[rank], static_cast<int>(i));
      EXPECT_THAT(complaint(others), AnyOf(HasSubstr(body[i].name), HasSubstr("wait for ever")))
          << "rank " << rank << " #" << i;
      ++num_messages;
    }
  }
  EXPECT_GE(num_messages, 20);
}

/// What comes into a slot waits until what is there has been read and handed on, in this repetition or the one before.
TEST(WalkingParameters, ASlotThatIsStillReadIsNotOverwritten) {
  const Program program = all_ranks(walking_plan(4, "v2"), equal_layers(4), no_workspace)[1];
  int num_received = 0;
  for (std::size_t i = 0; i < program.body.size(); ++i) {
    const Instruction& in = program.body[i];
    if (!in.is_collective() || in.collective != Collective::recv || in.phase == Phase::reduce) continue;
    if (in.waits.empty()) continue;  // what is on its stream before it waits for all that it would
    Program other = program;
    other.body[i].waits.clear();
    EXPECT_THAT(complaint(other), HasSubstr(in.name)) << "#" << i;
    ++num_received;
  }
  EXPECT_GE(num_received, 6);
}

TEST(WalkingParameters, RefusesByName) {
  const ModelGraph graph = equal_layers(4);
  const auto refused = [&](const auto& ask) {
    Plan plan = walking_plan(4, "v2");
    ask(plan);
    return lowering_refusal(plan, graph);
  };
  EXPECT_EQ(refused([](Plan&) {}), "");
  EXPECT_THAT(refused([](Plan& p) { p.schedule.fresh = "0001 0111 0111 1111"; }),
              HasSubstr("micro-batch 1 of 4 at stage 1 of 4 reading its own step's parameters, which are not there "
                        "before it begins, cannot be lowered"));
  EXPECT_THAT(refused([](Plan& p) {
                p.schedule.fresh = "none";
                p.optimizer.clip_norm = 0.5;
              }),
              HasSubstr("mesh.placement = zero-ring and optimizer.clip_norm = 0.5: stages are updated one after the "
                        "other,"));
  EXPECT_THAT(
      refused([](Plan& p) { p.schedule.shift = "begun"; }),
      HasSubstr("mesh.placement = zero-ring and schedule.shift = begun, which is a distance of whole replicas,"));
  EXPECT_THAT(refused([](Plan& p) { p.schedule.updater = "first_user"; }),
              HasSubstr("mesh.placement = zero-ring and schedule.optimizer = first_user, where it is settled who"));
  EXPECT_THAT(refused([](Plan& p) { p.stages.count = 2; }),
              HasSubstr("mesh.placement = zero-ring with 4 micro-batches and 2 stages on 4 ranks, not one of each a "
                        "rank,"));
  EXPECT_THAT(refused([](Plan& p) { p.operators.clear(); }),
              HasSubstr("block[0].linear: state that stays with mesh.placement = zero-ring"));
  EXPECT_THAT(refused([](Plan& p) { p.mesh.placement = "block"; }),
              HasSubstr("block[0].linear: state walks with mesh.placement = block"));
  EXPECT_THAT(refused([](Plan& p) {
                p.mesh.axes = {{"stage", 4}, {"micro_batch", 1}};
              }),
              HasSubstr("mesh.placement = zero-ring with schedule.kind = cyclic and mesh axis micro_batch = 1 of 4 "
                        "ranks"));
  EXPECT_THAT(refused([](Plan& p) {
                p.schedule = {.micro_batches = 4};
                p.stages.count = 1;
                p.mesh.axes = {{"data", 4}};
              }),
              HasSubstr("mesh.placement = zero-ring with schedule.kind = simultaneous and mesh axis micro_batch = 1"));
}

}  // namespace
}  // namespace strata::test_walking_parameters
