/// @file
/// What cyclic training refuses in each of its implementations, by name and with numbers.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "unit/lower/cyclic_implementations.hpp"
#include "unit/lower/equal_layers.hpp"
#include "unit/lower/planned.hpp"

namespace strata::test_cyclic_refusals {
namespace {

using ::testing::HasSubstr;

/// A table that the first and the last stage read would be of two steps at once: each stage has versions of its own.
TEST(CyclicRefusals, TiedWeightsOfTwoStagesInEveryImplementation) {
  const ModelGraph tied = build_model({.name = "gpt-nano", .layers = 3, .tied_head = true});
  const ModelGraph untied = build_model({.name = "gpt-nano", .layers = 3, .tied_head = false});
  for (const Implementation implementation : all_implementations) {
    for (const char* fresh : {"none", "v2"}) {
      const Plan plan = plan_of(implementation, 3, fresh);
      EXPECT_THAT(lowering_refusal(plan, tied),
                  HasSubstr("schedule.kind = cyclic with embedding.table in stages 0 and 2, whose versions differ,"))
          << static_cast<int>(implementation);
      EXPECT_EQ(lowering_refusal(plan, untied), "") << static_cast<int>(implementation);
    }
  }
}

/// All micro-batches of a step read their own step's parameters of the last stage, before the norm is known.
TEST(CyclicRefusals, ANormThatIsKnownTooLateInEveryImplementation) {
  for (const Implementation implementation : all_implementations) {
    Plan plan = plan_of(implementation, 3, "v2");
    plan.optimizer.clip_norm = 0.5;
    EXPECT_THAT(lowering_refusal(plan, equal_layers(3)), HasSubstr("optimizer.clip_norm = 0.5"))
        << static_cast<int>(implementation);
  }
}

TEST(CyclicRefusals, LayoutsInsideStages) {
  Plan plan = plan_of(Implementation::pipeline, 3, "v2");
  plan.mesh.ranks_per_node = 6;
  plan.operators = {{.match = "*", .layout = Layout{.p0 = {2, 1}}}};
  EXPECT_THAT(lowering_refusal(plan, equal_layers(3)),
              HasSubstr("schedule.kind = cyclic with tensor layouts inside stages, 6 ranks for 3 of them, cannot"));
}

}  // namespace
}  // namespace strata::test_cyclic_refusals
