/// @file
/// What is one region of recomputation, and what it forgets.

#include <gmock/gmock.h>

#include <vector>

#include "models/model.hpp"
#include "partition/recomputation.hpp"
#include "partition/stages.hpp"

namespace strata::test_recomputation {
namespace {

using ::testing::Contains;
using ::testing::Not;

std::vector<Recompute> of_blocks(const ModelGraph& graph, Recompute kind) {
  std::vector<Recompute> kinds;
  for (const Operator& op : graph.operators) kinds.push_back(op.block < 0 ? Recompute::none : kind);
  return kinds;
}

TEST(Recomputation, ABlockIsARegionWhichForgetsWhatIsReadInsideAlone) {
  const ModelGraph graph = build_model({.name = "gpt-nano", .layers = 3});
  const std::vector<RecomputedRegion> regions =
      recomputed_regions(graph, of_blocks(graph, Recompute::whole_block), {}, {});
  ASSERT_EQ(regions.size(), 3U);
  for (const RecomputedRegion& region : regions) {
    EXPECT_FALSE(region.forgotten.empty());
    for (const Operator& op : graph.operators) {
      const int index = static_cast<int>(&op - graph.operators.data());
      if (region.first_operator <= index && index < region.end()) continue;
      for (const int read : op.inputs) EXPECT_THAT(region.forgotten, Not(Contains(read))) << op.name;
    }
  }
}

TEST(Recomputation, ARegionEndsWhereAStageBegins) {
  const ModelGraph graph = build_model({.name = "gpt-nano", .layers = 3});
  const std::vector<Stage> stages =
      cut_into_stages(graph, {.count = 3, .cut_at = "operator", .begins = {"block[1].attn.core", "block[2].mlp.gelu"}});
  const std::vector<RecomputedRegion> regions =
      recomputed_regions(graph, of_blocks(graph, Recompute::block), {}, stages);
  EXPECT_EQ(regions.size(), 5U) << "two of three blocks are cut";
  for (const Stage& stage : stages) {
    for (const RecomputedRegion& region : regions) {
      EXPECT_FALSE(region.first_operator < stage.first_operator && stage.first_operator < region.end());
      for (const int sent : tensors_across(graph, stage.first_operator)) {
        EXPECT_THAT(region.forgotten, Not(Contains(sent)));
      }
    }
  }
}

}  // namespace
}  // namespace strata::test_recomputation
