/// @file
/// Products whose sums all ranks have, in Programs: as many all-reduces a layer as Megatron-LM and Oases count, samples
/// that are gathered where degrees rise and parted where they fall, ranks that stand for others, and refusals.

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <map>
#include <string>
#include <vector>

#include "lower/rank_classes.hpp"
#include "unit/lower/planned.hpp"
#include "unit/lower/tensor_parallel.hpp"

namespace strata::test_whole_sums {
namespace {

using testing::HasSubstr;

/// Shoeybi et al. sec. 3, figure 4: two forward and two backward. A recomputation adds the one that is read, behind
/// attention: nothing reads the output of the whole block again.
TEST(WholeSums, AreTwoAllReducesALayerAndPass) {
  for (const int t : {2, 8}) {
    for (const Recompute recompute : {Recompute::none, Recompute::block}) {
      const Plan plan = plan_of({t, t, t}, recompute);
      EXPECT_EQ(collectives(plan, Phase::forward), (Counts{{Collective::all_reduce, 2 * num_layers}}));
      EXPECT_EQ(collectives(plan, Phase::backward), (Counts{{Collective::all_reduce, 2 * num_layers}}));
      const Counts again = recompute == Recompute::none ? Counts{} : Counts{{Collective::all_reduce, num_layers}};
      EXPECT_EQ(collectives(plan, Phase::recompute), again);
    }
  }
}

/// Oases sec. 4: one gather where the degree changes, forward if it rises and backward if it falls; the norm and the
/// residual read the same.
TEST(WholeSums, GatherSamplesOnceWhereTheDegreeChanges) {
  const Counts sums{{Collective::all_reduce, 2 * num_layers}};
  const Counts sums_and_gather{{Collective::all_gather, 1}, {Collective::all_reduce, 2 * num_layers}};
  EXPECT_EQ(collectives(plan_of({2, 8, 8}), Phase::forward), sums_and_gather);
  EXPECT_EQ(collectives(plan_of({2, 8, 8}), Phase::backward), sums);
  EXPECT_EQ(collectives(plan_of({8, 2, 2}), Phase::forward), sums);
  EXPECT_EQ(collectives(plan_of({8, 2, 2}), Phase::backward), sums_and_gather);
  for (const std::vector<int>& degrees : {std::vector{1, 4, 2}, {4, 1, 8}, {8, 4, 1}}) {
    EXPECT_NO_THROW(verify(all_ranks(plan_of(degrees), gpt(), no_workspace)))
        << fmt::format("{}", fmt::join(degrees, " "));
  }
}

/// Norms' gradients are equal on the ranks of a sum: only those that have other samples are added.
TEST(WholeSums, NormsAreSummedOverSamplesAlone) {
  for (const int t : {2, 4}) {
    const Program program = lower(plan_of({t, t, t}), gpt(), 0, no_workspace);
    for (const Instruction& in : program.body) {
      if (in.collective != Collective::all_reduce || in.phase != Phase::reduce) continue;
      EXPECT_EQ(program.groups[static_cast<std::size_t>(in.group)].ranks.size(), 8 / t);
    }
  }
}

TEST(WholeSums, RanksOfAClassHaveEquallyMuch) {
  for (const std::vector<int>& degrees : {std::vector{2, 2, 2}, {1, 4, 2}, {8, 4, 1}}) {
    const Plan plan = plan_of(degrees);
    const std::vector<Program> programs = all_ranks(plan, gpt(), no_workspace);
    const RankClasses classes = rank_classes(plan, gpt());
    EXPECT_LT(classes.representatives.size(), programs.size());
    for (std::size_t r = 0; r < programs.size(); ++r) {
      const auto first =
          static_cast<std::size_t>(classes.representatives[static_cast<std::size_t>(classes.class_of_rank[r])]);
      EXPECT_EQ(programs[r].arena_bytes, programs[first].arena_bytes);
      EXPECT_EQ(bytes_by_collective(programs[r]).total(), bytes_by_collective(programs[first]).total());
    }
  }
}

TEST(WholeSums, AreRefusedWhereThereAreNoPartialSums) {
  Plan plan = plan_of({2, 2, 2});
  plan.operators.push_back({.match = "*.mlp.*", .algorithm = MatmulAlgorithm::summa});
  EXPECT_THAT(
      lowering_refusal(plan, gpt()),
      HasSubstr("block[0].mlp.fc1: sum = all_reduce with algorithm = summa, whose panels leave no partial sums"));
  Plan with_axes = plan_of({1, 1, 1});
  with_axes.mesh.axes = {{"data", 8}};
  with_axes.operators = {{.match = "*", .sum = PartialSums::all_reduce}};
  EXPECT_THAT(lowering_refusal(with_axes, gpt()),
              HasSubstr("embedding: sum = all_reduce on a mesh with axes, where no product leaves partial sums"));
  Plan dealt = plan_of({1, 8, 8});
  dealt.operators.push_back({.match = "*norm", .layout = Layout{{8, 1}, {}, {}}});
  dealt.operators.push_back({.match = "*norm", .state = StateFactors{.p = {}, .g = {}, .os = {8, 1}}});
  EXPECT_THAT(lowering_refusal(dealt, gpt()), HasSubstr("block[1].attn.norm: os = 8x1 of what 1x1 ranks share"));
}

}  // namespace
}  // namespace strata::test_whole_sums
