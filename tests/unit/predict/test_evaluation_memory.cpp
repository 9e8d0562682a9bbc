/// @file
/// What an evaluation takes beside a training is known before anything runs: of the rank that takes most, and to the
/// byte of what both fit in.

#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "config/sweep.hpp"
#include "lower/evaluation.hpp"
#include "predict/prediction.hpp"

namespace strata::predict::test_evaluation_memory {
namespace {

constexpr const char* text = R"(name = "tiny"
cluster = "a800-ib"
[model]
name = "gpt-nano"
layers = 4
[data]
format = "synthetic"
[resources]
nodes = 2
ranks_per_node = 4
[train]
global_batch = 64
micro_batches = 2
[evaluate]
every = 3
num_samples = 100
)";

PreparedPoint prepared(const std::vector<std::string>& overrides) {
  const Experiment experiment = expand(read_experiment(text, "e.toml", overrides), "simulated").points.at(0).experiment;
  return prepare_point(experiment, "/no/such/folder/e.toml", "");
}

std::int64_t lowered_bytes(const PreparedPoint& point, int rank) {
  const Plan plan = evaluation_plan(point.plan, evaluation_batch(point));
  return lower_evaluation(plan, evaluation_graph(point.graph), rank, kernels_of(point)).arena_bytes;
}

/// With stages, whose ranks train with different memory; and with 11 samples on 8 ranks.
std::vector<PreparedPoint> points() {
  std::vector<PreparedPoint> all;
  for (const char* batch : {"evaluate.batch=0", "evaluate.batch=11"}) {
    all.push_back(prepared({"strategy.name=ddp", batch}));
    all.push_back(prepared({"strategy.name=zero3", batch}));
    all.push_back(prepared({"strategy.name=1f1b", "strategy.stages=4", batch}));
  }
  return all;
}

TEST(EvaluationMemory, IsOfTheRankThatTakesMost) {
  for (const PreparedPoint& point : points()) {
    std::int64_t most = 0;
    for (int rank = 0; rank < point.plan.mesh.num_ranks(); ++rank) most = std::max(most, lowered_bytes(point, rank));
    EXPECT_EQ(evaluation_arena_bytes(point, lower_job(point)), most) << point.plan.strategy;
  }
  PreparedPoint never = points().front();
  never.experiment.evaluate.every = 0;
  EXPECT_EQ(evaluation_arena_bytes(never, lower_job(never)), 0);
}

TEST(EvaluationMemory, StandsBesideTheTrainingOfItsOwnRank) {
  for (PreparedPoint& point : points()) {
    const LoweredJob training = lower_job(point);
    std::int64_t needed = 0;
    for (int rank = 0; rank < point.plan.mesh.num_ranks(); ++rank) {
      const auto of_rank = static_cast<std::size_t>(training.class_of_rank[static_cast<std::size_t>(rank)]);
      needed = std::max(needed, training.programs[of_rank].arena_bytes + lowered_bytes(point, rank));
    }
    point.plan.device_capacity_bytes = needed;
    EXPECT_NO_THROW(evaluation_arena_bytes(point, training)) << point.plan.strategy;
    --point.plan.device_capacity_bytes;
    EXPECT_THAT([&] { evaluation_arena_bytes(point, training); },
                testing::ThrowsMessage<OutOfMemory>(testing::HasSubstr("bytes beside the")))
        << point.plan.strategy;
  }
}

}  // namespace
}  // namespace strata::predict::test_evaluation_memory
