#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "partition/replica_ring.hpp"
#include "unit/lower/equal_layers.hpp"
#include "unit/lower/planned.hpp"

namespace strata::test_cyclic_lowering {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

ModelGraph five_layers() { return build_model({.name = "mlp", .widths = {16, 24, 16, 24, 16, 10}}); }

enum class Ranks { one, one_a_stage, one_a_micro_batch };

/// @p micro_batches of two samples.
Plan cyclic_plan(int micro_batches, int stages, const std::string& fresh, Ranks ranks, DType compute) {
  Plan plan;
  plan.strategy = "cyclic";
  const int stage_ranks = ranks == Ranks::one_a_stage ? stages : 1;
  const int replicas = ranks == Ranks::one_a_micro_batch ? micro_batches : 1;
  plan.mesh.axes = {{"data", 1}, {"stage", stage_ranks}, {"micro_batch", replicas}};
  plan.mesh.ranks_per_node = stage_ranks * replicas;
  plan.stages.count = stages;
  plan.schedule = {.kind = ScheduleKind::cyclic, .micro_batches = micro_batches, .fresh = fresh};
  plan.global_batch = 2 * micro_batches;
  plan.optimizer = {.kind = "sgd", .momentum = 0.5};
  plan.dtypes.compute = compute;
  return plan;
}

std::vector<Program> programs_of(const Plan& plan, const ModelGraph& graph) {
  std::vector<Program> programs;
  for (int rank = 0; rank < plan.mesh.num_ranks(); ++rank) {
    programs.push_back(lower(plan, graph, rank, [](const Program&, const Instruction&) { return std::int64_t{0}; }));
  }
  return programs;
}

TEST(CyclicLowering, OrdersAndProgramsVerify) {
  const ModelGraph graph = five_layers();
  for (const int micro_batches : {1, 2, 3, 4}) {
    for (const int stages : {1, 2, 3, 4}) {
      for (const char* fresh : {"none", "v2"}) {
        for (const Ranks ranks : {Ranks::one, Ranks::one_a_stage, Ranks::one_a_micro_batch}) {
          for (const DType compute : {DType::f32, DType::bf16}) {
            const Plan plan = cyclic_plan(micro_batches, stages, fresh, ranks, compute);
            SCOPED_TRACE(fmt::format("{} micro-batches, {} stages, {}, {}", micro_batches, stages, fresh,
                                     static_cast<int>(ranks)));
            ASSERT_NO_THROW(verify(step_orders(plan, graph)));
            ASSERT_NO_THROW(verify(programs_of(plan, graph)));
          }
        }
      }
    }
  }
}

TEST(CyclicLowering, TwoStepsABodyWhereTwoVersionsAreRead) {
  const ModelGraph graph = five_layers();
  const auto lowered = [&](int micro_batches, int stages, const char* fresh) {
    return lower(cyclic_plan(micro_batches, stages, fresh, Ranks::one, DType::f32), graph, 0, no_workspace);
  };
  EXPECT_EQ(lowered(1, 1, "v2").steps_per_body, 1) << "SGD";
  EXPECT_EQ(lowered(1, 1, "none").steps_per_body, 2) << "a delay of one";
  EXPECT_EQ(lowered(3, 3, "v2").steps_per_body, 2);
}

/// Of shared stages: 2N - 1 with v2, whose last stage is always fresh, 2N with v1.
TEST(CyclicLowering, HoldsAsManyVersionsAsAreRead) {
  const ModelGraph graph = five_layers();
  for (const int n : {2, 3, 4}) {
    for (const auto& [fresh, num_versions] : {std::pair{"v2", 2 * n - 1}, {"none", 2 * n}}) {
      int held = 0;
      for (const Program& program : programs_of(cyclic_plan(n, n, fresh, Ranks::one_a_stage, DType::f32), graph)) {
        std::map<std::string, int> buffers;
        for (const Buffer& buffer : program.buffers) buffers[buffer.parameter] += buffer.parameter.empty() ? 0 : 1;
        std::erase_if(buffers, [](const auto& entry) { return entry.second == 0; });
        ASSERT_FALSE(buffers.empty());
        for (const auto& [parameter, num] : buffers) EXPECT_EQ(num, buffers.begin()->second) << parameter;
        held += buffers.begin()->second;
      }
      EXPECT_EQ(held, num_versions) << n << " stages, " << fresh;
    }
  }
}

/// Of a training step, whatever step of the body it is.
std::int64_t sent_bytes(const Program& program) {
  std::int64_t bytes = 0;
  for (const Instruction& in : program.body) bytes += bytes_sent(program, in);
  return bytes / program.steps_per_body;
}

/// With P bytes of parameters on N ranks a rank sends 2 (N-1)/N P in the mean, and at most (2N-1)/N P with v2 and 2 P
/// with v1, to others alone: no collective is in the body.
TEST(CyclicLowering, ARingSendsNoMoreThanAnAllReduceWould) {
  for (const int n : {2, 3, 4, 8}) {
    const ModelGraph graph = equal_layers(n);
    const std::int64_t whole = n * layer_bytes;
    for (const char* fresh : {"none", "v2"}) {
      std::int64_t sum = 0, most = 0;
      for (const Program& program :
           programs_of(cyclic_plan(n, n, fresh, Ranks::one_a_micro_batch, DType::f32), graph)) {
        for (const Instruction& in : program.body) {
          if (!in.is_collective()) continue;
          EXPECT_TRUE(in.collective == Collective::send || in.collective == Collective::recv) << in.name;
        }
        sum += sent_bytes(program);
        most = std::max(most, sent_bytes(program));
      }
      EXPECT_EQ(sum, 2 * (n - 1) * whole) << n << ", " << fresh;
      // With v1 one chain of readers has all stages, and all but its last one send everything on.
      const bool has_two_chains = std::string(fresh) == "v2";
      EXPECT_EQ(most, n == 2 ? whole : has_two_chains ? (2 * n - 1) * whole / n : 2 * whole) << n << ", " << fresh;
    }
  }
}

/// A replica that updates nothing has its weights, once more those of the spare stage, and no state of the optimizer;
/// the last one all of that, and with v1, where it reads the last version too, all weights twice.
TEST(CyclicLowering, ReplicasHoldTheirWeightsAndTheLastOneTheStates) {
  constexpr int n = 4;
  const ModelGraph graph = equal_layers(n);
  constexpr std::int64_t stage = layer_bytes;
  const auto held = [](const Program& program, Category category) {
    std::int64_t bytes = 0;
    for (const Buffer& buffer : program.buffers) {
      if (buffer.persistent && buffer.category == category) bytes += buffer.size_bytes();
    }
    return bytes;
  };
  for (const char* fresh : {"none", "v2"}) {
    for (const int spare : {0, 1, 2}) {
      Plan plan = cyclic_plan(n, n, fresh, Ranks::one_a_micro_batch, DType::f32);
      plan.schedule.spare_stages = spare;
      const bool is_v1 = plan.schedule.fresh == "none";
      for (const Program& program : programs_of(plan, graph)) {
        const bool is_last = program.rank + 1 == n;
        // Of the second stage micro-batch 2 of 4 reads its own step's parameters: it needs no spare buffer there.
        const int num_spare = is_v1 || program.rank < 2 ? spare : std::min(spare, 1);
        const std::int64_t weights = is_last ? (is_v1 ? 2 * n : n) : n + num_spare;
        EXPECT_EQ(held(program, Category::parameter), weights * stage) << fresh << ", rank " << program.rank;
        EXPECT_EQ(held(program, Category::optimizer), is_last ? n * stage : 0) << fresh << ", rank " << program.rank;
      }
    }
  }
}

/// Between ranks of a ring the messages of a step are, by stage: one of sums to the next rank, one of parameters from
/// the last rank to the first reader of each kind, one from each reader to the next.
TEST(CyclicLowering, WhoSendsToWhomOnARing) {
  const Schedule v2{.kind = ScheduleKind::cyclic, .micro_batches = 4, .fresh = "v2"};
  using Readers = std::vector<ReplicaRing::Reader>;
  const auto to = [&](int replica, int stage) {
    return replica_ring(v2, 4, replica).stages[static_cast<std::size_t>(stage)].to;
  };
  // Stage 2: micro-batches 1 and 2 read their own step's, 0 those of the step before.
  EXPECT_EQ(to(3, 2), (Readers{{1, Arrival::before_forward}, {0, Arrival::behind_backward}}));
  EXPECT_EQ(to(1, 2), (Readers{{2, Arrival::before_forward}}));
  EXPECT_EQ(to(2, 2), Readers{});
  EXPECT_EQ(to(0, 2), Readers{});
  // Stage 0: all but the last read those of the step before, which come beside them.
  EXPECT_EQ(to(3, 0), (Readers{{0, Arrival::in_spare_buffer}}));
  EXPECT_EQ(to(0, 0), (Readers{{1, Arrival::in_spare_buffer}}));
  EXPECT_EQ(to(1, 0), (Readers{{2, Arrival::in_spare_buffer}}));
  Schedule direct = v2;
  direct.spread = "direct";
  EXPECT_EQ(replica_ring(direct, 4, 3).stages[2].to,
            (Readers{{1, Arrival::before_forward}, {2, Arrival::before_forward}, {0, Arrival::behind_backward}}));
  for (const int replica : {0, 1, 2}) {
    for (const auto& stage : replica_ring(direct, 4, replica).stages) {
      EXPECT_EQ(stage.from, 3);
      EXPECT_EQ(stage.to, Readers{});
    }
  }
}

/// Between the update of a stage and the messages with what it has made no kernel runs, so that they leave at once;
/// they belong to the same training step, and their readers receive them a repetition late where that is the body's
/// last. Only where a reader has no room for them yet they leave with the next step.
TEST(CyclicLowering, UpdatedParametersLeaveBehindTheirUpdate) {
  constexpr int n = 3;
  const auto is_of = [](const Instruction& in, Collective kind) {
    return in.is_collective() && in.collective == kind && in.phase == Phase::update;
  };
  for (const char* fresh : {"none", "v2", "111 111 111", "010 101 011"}) {
    for (const char* updater : {"last", "first_user"}) {
      Plan plan = cyclic_plan(n, n, fresh, Ranks::one_a_micro_batch, DType::f32);
      plan.schedule.updater = updater;
      SCOPED_TRACE(fmt::format("{}, {}", fresh, updater));
      const std::vector<Program> programs = programs_of(plan, equal_layers(n));
      int num_at_once = 0, num_received_late = 0;
      for (const Program& program : programs) {
        const ReplicaRing ring = replica_ring(plan.schedule, n, program.rank);
        const Instruction* kernel = nullptr;
        for (const Instruction& in : program.body) {
          if (!in.is_collective()) kernel = &in;
          num_received_late += is_of(in, Collective::recv) && in.step < 0 ? 1 : 0;
          if (!is_of(in, Collective::send)) continue;
          const int stage = in.name[std::string_view("block[").size()] - '0';
          const auto& readers = ring.stages[static_cast<std::size_t>(stage)].to;
          const auto reader = std::ranges::find(readers, in.root, &ReplicaRing::Reader::replica);
          ASSERT_NE(reader, readers.end());
          if (!ring.updates(stage) || reader->arrival == Arrival::behind_backward) continue;
          ASSERT_NE(kernel, nullptr);
          EXPECT_EQ(kernel->kernel, Kernel::sgd_momentum) << in.name;
          EXPECT_EQ(kernel->name, in.name);
          EXPECT_EQ(kernel->step, in.step) << in.name;
          ++num_at_once;
        }
      }
      EXPECT_GT(num_at_once, 0);
      EXPECT_GT(num_received_late, 0);
    }
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

/// Every message of a ring is needed by its other end, and every wait across steps by somebody: verify names what is
/// missing.
TEST(CyclicLowering, WhatIsLeftOutIsNamed) {
  for (const char* fresh : {"none", "v2"}) {
    const std::vector<Program> programs =
        programs_of(cyclic_plan(3, 3, fresh, Ranks::one_a_micro_batch, DType::f32), equal_layers(3));
    int num_messages = 0, num_waits = 0;
    for (std::size_t rank = 0; rank < programs.size(); ++rank) {
      const std::vector<Instruction>& body = programs[rank].body;
      for (std::size_t i = 0; i < body.size(); ++i) {
        if (body[i].is_collective() && body[i].allocs.empty() && body[i].frees.empty()) {
          std::vector<Program> others = programs;
          others[rank] = without(programs[rank], static_cast<int>(i));
          // Another message may take its place, of the same size; then those behind it wait.
          EXPECT_THAT(complaint(others), AnyOf(HasSubstr(body[i].name), HasSubstr("wait for ever")))
              << "rank " << rank << " #" << i;
          ++num_messages;
        }
        for (std::size_t w = 0; w < body[i].waits.size(); ++w) {
          if (body[i].waits[w].lag == 0) continue;
          Program other = programs[rank];
          std::vector<Wait>& waits = other.body[i].waits;
          waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(w));
          EXPECT_THAT(complaint(other), HasSubstr("program of rank")) << "rank " << rank << " #" << i;
          ++num_waits;
        }
      }
    }
    EXPECT_GE(num_messages, 20) << fresh;
    EXPECT_GE(num_waits, 10) << fresh;
  }
}

/// A version that is overwritten while a backward still needs it: parameters that do not wait for it.
TEST(CyclicLowering, AVersionThatIsStillReadIsNotOverwritten) {
  const Program program =
      programs_of(cyclic_plan(3, 3, "none", Ranks::one_a_micro_batch, DType::f32), equal_layers(3))[0];
  int num_received = 0;
  for (std::size_t i = 0; i < program.body.size(); ++i) {
    const Instruction& in = program.body[i];
    if (!in.is_collective() || in.collective != Collective::recv || in.phase != Phase::update) continue;
    if (std::ranges::none_of(in.waits, [](const Wait& wait) { return wait.lag == 0; })) continue;
    Program other = program;
    std::erase_if(other.body[i].waits, [](const Wait& wait) { return wait.lag == 0; });
    EXPECT_THAT(complaint(other), HasSubstr(in.name)) << i;
    ++num_received;
  }
  EXPECT_GE(num_received, 2);
}

TEST(CyclicLowering, RefusesByName) {
  const ModelGraph graph = five_layers();
  const Plan plan = cyclic_plan(3, 3, "v2", Ranks::one, DType::f32);
  const auto refused = [&](const auto& ask, const ModelGraph& of) {
    Plan other = plan;
    ask(other);
    return lowering_refusal(other, of);
  };
  EXPECT_THAT(refused([](Plan& p) { p.schedule.fresh = "011 011 111"; }, graph),
              HasSubstr("schedule.kind = cyclic with micro-batch 0 of 3 at stage 1 of 3 reading its own step's "
                        "parameters, which are not there before it begins, cannot be lowered"));
  EXPECT_THAT(refused([](Plan& p) { p.overlap.update = "backward"; }, graph), HasSubstr("overlap.update = backward"));
  const auto on_ring = [&](const auto& ask) {
    Plan other = cyclic_plan(3, 3, "v2", Ranks::one_a_micro_batch, DType::f32);
    ask(other);
    return lowering_refusal(other, graph);
  };
  EXPECT_THAT(on_ring([](Plan& p) { p.overlap.all_reduce = "none"; }),
              HasSubstr("overlap.all_reduce = none on a ring"));
  EXPECT_THAT(on_ring([](Plan& p) { p.global_batch = p.schedule.micro_batches = 6; }),
              HasSubstr("mesh axis micro_batch = 3 and 6 micro-batches, not one a rank,"));
  EXPECT_THAT(on_ring([](Plan& p) {
                p.mesh.ranks_per_node = 9;
                p.mesh.axes = {{"micro_batch", 3}, {"stage", 3}};
              }),
              HasSubstr("mesh axes micro_batch = 3 and stage = 3"));
  Plan free = cyclic_plan(3, 3, "111 111 111", Ranks::one_a_micro_batch, DType::f32);
  EXPECT_NO_THROW(lower(free, graph, 0, no_workspace)) << "what a replica waits for comes from others";
  const ModelGraph tied = build_model({.name = "gpt-nano", .layers = 3, .tied_head = true});
  EXPECT_THAT(refused([](Plan&) {}, tied), HasSubstr("embedding.table in stages 0 and 2, whose versions differ,"));
}

}  // namespace
}  // namespace strata::test_cyclic_lowering
