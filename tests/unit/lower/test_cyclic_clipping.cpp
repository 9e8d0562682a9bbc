/// @file
/// Cyclic steps whose gradients are clipped: which tables have them, on whatever ranks.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "partition/fresh_table.hpp"
#include "unit/lower/planned.hpp"

namespace strata::test_cyclic_clipping {
namespace {

using ::testing::HasSubstr;

/// @param axis along which ranks have a stage or a micro-batch each; data: there is one rank.
Plan clipped(int n, const std::string& fresh, const std::string& axis) {
  Plan plan;
  plan.strategy = "cyclic";
  plan.mesh.axes = {{axis, axis == "data" ? 1 : n}};
  plan.mesh.ranks_per_node = plan.mesh.axes.front().size;
  plan.stages.count = n;
  plan.schedule = {.kind = ScheduleKind::cyclic, .micro_batches = n, .fresh = fresh};
  plan.global_batch = 2 * n;
  plan.optimizer = {.kind = "sgd", .momentum = 0.5, .clip_norm = 0.5};
  return plan;
}

/// Whoever may read what the last micro-batch's backward of the first stage lets be updated: rank N-1 does at once.
TEST(CyclicClipping, TakesWhatIsReadBehindTheNorm) {
  const ModelGraph graph = build_model({.name = "mlp", .widths = {8, 6, 8, 6, 8, 6, 4}});
  EXPECT_EQ(freshest_behind_norm(3, 3), (FreshTable{"000", "001", "111"}));
  EXPECT_EQ(freshest_behind_norm(1, 2), (FreshTable{"11"}));
  EXPECT_EQ(freshest_behind_norm(2, 1), (FreshTable{"0", "1"}));
  for (const char* axis : {"data", "stage", "micro_batch"}) {
    for (const int n : {2, 3, 4}) {
      SCOPED_TRACE(fmt::format("{}, {}", axis, n));
      EXPECT_THAT(lowering_refusal(clipped(n, "v2", axis), graph),
                  HasSubstr("schedule.kind = cyclic with optimizer.clip_norm = 0.5 and micro-batch "));
      std::string most;
      for (const std::string& row : freshest_behind_norm(n, n)) most += (most.empty() ? "" : " ") + row;
      for (const std::string& fresh : {std::string("none"), most}) {
        const Plan plan = clipped(n, fresh, axis);
        EXPECT_NO_THROW(verify(step_orders(plan, graph)));
        EXPECT_NO_THROW(verify(all_ranks(plan, graph, no_workspace)));
      }
    }
  }
  EXPECT_THAT(lowering_refusal(clipped(3, "000 011 111", "micro_batch"), graph),
              HasSubstr("micro-batch 1 of 3 at stage 1 of 3 reading its own step's parameters, which is before the "
                        "last micro-batch has made the gradients of stage 0, and so before the norm is known,"));
}

}  // namespace
}  // namespace strata::test_cyclic_clipping
