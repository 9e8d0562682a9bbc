/// @file
/// The ranks that are lowered to know a plan's peak: none of the others needs more.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lower/rank_classes.hpp"
#include "planned.hpp"
#include "planners/states/factors.hpp"

namespace strata::test_fullest_ranks {
namespace {

std::int64_t peak_of(const Plan& plan, const ModelGraph& graph, const std::vector<int>& ranks) {
  std::int64_t peak = 0;
  for (const int rank : ranks) peak = std::max(peak, lower(plan, graph, rank, no_workspace).arena_bytes);
  return peak;
}

std::vector<int> every_rank(const Plan& plan) {
  std::vector<int> ranks(static_cast<std::size_t>(plan.mesh.num_ranks()));
  for (std::size_t r = 0; r < ranks.size(); ++r) ranks[r] = static_cast<int>(r);
  return ranks;
}

/// Every legal triple on 2 × 4 ranks, every way to deal and to reduce, small buckets and one.
TEST(FullestRanks, OneOfThemNeedsMost) {
  std::size_t num_lowered = 0, num_ranks = 0;
  for (const char* model : {"gpt-nano", "mlp-tiny"}) {
    const ModelGraph graph = build_model({.name = model});
    const int micro_batches = model == std::string_view("gpt-nano") ? 1 : 2;
    for (const StateFactors& state : legal_states({4, 2})) {
      for (const char* sharding : {"inter_tensor", "intra_tensor"}) {
        const bool inter = sharding == std::string_view("inter_tensor");
        for (const char* gradients : {"all_reduce", "reduce_scatter"}) {
          if (inter && gradients == std::string_view("reduce_scatter")) continue;
          for (const std::int64_t bucket_bytes : {4096, 1 << 24}) {
            if (bucket_bytes > 4096 && micro_batches == 1) continue;
            Plan plan = sharded_on_two_nodes(micro_batches, state);
            plan.overlap.bucket_bytes = bucket_bytes;
            plan.optimizer.sharding = sharding;
            plan.optimizer.spread = inter ? "broadcast" : "all_gather";
            plan.optimizer.gradients = gradients;
            for (const char* update : {"none", "backward"}) {
              plan.overlap.update = update;
              const std::vector<int> fullest = fullest_ranks(plan, graph);
              EXPECT_EQ(peak_of(plan, graph, fullest), peak_of(plan, graph, every_rank(plan)))
                  << fmt::format("{}, {}, {}, {}, {} micro-batches, update {}", model, to_string(state), sharding,
                                 gradients, micro_batches, update);
              if (!inter) {
                EXPECT_EQ(fullest, std::vector<int>{0}) << "the first has the longest chunks";
              }
              num_lowered += fullest.size();
              num_ranks += 8;
            }
          }
        }
      }
    }
  }
  EXPECT_LT(4 * num_lowered, num_ranks);
}

TEST(FullestRanks, AreFoundInEachStage) {
  const ModelGraph graph = build_model({.name = "gpt-micro"});
  Plan plan = planned(find_planner("1f1b"), graph, asked(8, 4), {{"stages", std::int64_t{2}}});
  const Factor two{2, 1};
  for (const StateFactors& state : {StateFactors{}, {.p = two, .g = two, .os = two}, {.g = two, .os = two}}) {
    plan.operators = {{.match = "*", .state = state}};
    const std::vector<int> fullest = fullest_ranks(plan, graph);
    EXPECT_EQ(fullest, (std::vector<int>{0, 2}));
    EXPECT_EQ(peak_of(plan, graph, fullest), peak_of(plan, graph, every_rank(plan)));
  }
}

}  // namespace
}  // namespace strata::test_fullest_ranks
