#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "unit/lower/planned.hpp"

namespace strata {
namespace {

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
  EXPECT_THAT(refused([](Plan& p) { p.optimizer.clip_norm = 1.0; }, graph),
              HasSubstr("with optimizer.clip_norm = 1: stages are updated one after the other"));
  EXPECT_THAT(refused([](Plan& p) { p.overlap.update = "backward"; }, graph), HasSubstr("overlap.update = backward"));
  const ModelGraph tied = build_model({.name = "gpt-nano", .layers = 3, .tied_head = true});
  EXPECT_THAT(refused([](Plan&) {}, tied), HasSubstr("embedding.table in stages 0 and 2, whose versions differ,"));
}

}  // namespace
}  // namespace strata
