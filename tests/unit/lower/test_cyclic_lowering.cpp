#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "unit/lower/planned.hpp"

namespace strata {
namespace {

using ::testing::HasSubstr;

ModelGraph five_layers() { return build_model({.name = "mlp", .widths = {16, 24, 16, 24, 16, 10}}); }

/// @p micro_batches of two samples; stages on a rank each, or all on one.
Plan cyclic_plan(int micro_batches, int stages, const std::string& fresh, bool on_one_rank, DType compute) {
  Plan plan;
  plan.strategy = "cyclic";
  plan.mesh.axes = {{"data", 1}, {"stage", on_one_rank ? 1 : stages}};
  plan.mesh.ranks_per_node = on_one_rank ? 1 : stages;
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

TEST(CyclicLowering, ProgramsVerifyOnOneRankAndOnARankAStage) {
  const ModelGraph graph = five_layers();
  for (const int micro_batches : {1, 2, 3, 4}) {
    for (const int stages : {1, 2, 3, 4}) {
      for (const char* fresh : {"none", "v2"}) {
        for (const bool on_one_rank : {true, false}) {
          for (const DType compute : {DType::f32, DType::bf16}) {
            const Plan plan = cyclic_plan(micro_batches, stages, fresh, on_one_rank, compute);
            SCOPED_TRACE(fmt::format("{} micro-batches, {} stages, {}, {}", micro_batches, stages, fresh, on_one_rank));
            ASSERT_NO_THROW(verify(programs_of(plan, graph)));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace strata
