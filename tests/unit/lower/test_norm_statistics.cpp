/// @file
/// Running statistics of batch norms: what all ranks together make of the statistics of a step's micro-batches is what
/// one rank makes that takes them one after another, as PyTorch does.

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "ir/program/training_state.hpp"
#include "lower/lower.hpp"
#include "models/model.hpp"
#include "partition/sample_parts.hpp"
#include "unit/lower/planned.hpp"

namespace strata::test_norm_statistics {
namespace {

constexpr double momentum = 0.1;

/// The statistic of micro-batch @p k of step @p step: any numbers.
double statistic(int step, int k) { return 1.0 + 0.37 * k + 2.3 * step; }

struct Case {
  std::string name;
  std::vector<MeshAxis> axes;
  std::int64_t global_batch = 0;
  int micro_batches = 1;
  int parts = 1;  ///< of a micro-batch that have samples
};

double of_one_rank(int steps, int events) {
  double value = 1.0;
  for (int step = 0; step < steps; ++step) {
    for (int k = 0; k < events; ++k) value = (1.0 - momentum) * value + momentum * statistic(step, k);
  }
  return value;
}

/// Which micro-batch of the step an instruction's statistics are of, by the samples that the rank has loaded.
int event_of(const Program& program, const Instruction& update, const Case& c) {
  for (const Instruction& in : program.body) {
    if (in.kernel != Kernel::load_images || in.micro_batch != update.micro_batch) continue;
    const std::int64_t samples = c.global_batch / c.micro_batches;
    const std::int64_t within = in.attributes.integer("first_sample") - update.micro_batch * samples;
    const std::int64_t size = (samples + c.parts - 1) / c.parts;
    return update.micro_batch * c.parts + static_cast<int>(within / size);
  }
  return -1;
}

TEST(NormStatistics, SumsOverRanksAreThoseOfOneRankThatTakesAllMicroBatches) {
  const ModelGraph graph = build_model({.name = "resnet-nano"});
  for (const Case& c : {Case{"single", {{"data", 1}}, 6, 1, 1}, Case{"accumulating", {{"data", 1}}, 6, 3, 1},
                        Case{"replicas", {{"data", 3}}, 18, 2, 3}, Case{"uneven", {{"data", 4}}, 14, 1, 4},
                        Case{"a rank without samples", {{"data", 4}}, 6, 2, 3}}) {
    SCOPED_TRACE(c.name);
    const int ranks = c.axes.front().size;
    Plan plan;
    plan.strategy = "ddp";
    plan.mesh = {.nodes = 1, .ranks_per_node = ranks, .axes = c.axes};
    plan.global_batch = c.global_batch;
    plan.schedule.micro_batches = c.micro_batches;
    constexpr int steps = 3;
    double sum = 0.0;
    int owners = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const Program program = lower(plan, graph, rank, [](const Program&, const Instruction&) { return 0; });
      const std::vector<KeptStatistics> kept = kept_statistics(program);
      const std::int64_t samples = samples_of_rank(plan, rank).size();
      ASSERT_EQ(kept.empty(), samples == 0) << "rank " << rank;
      if (kept.empty()) continue;
      EXPECT_EQ(kept.front().weight, "stem.norm.weight");
      owners += kept.front().has_first_samples ? 1 : 0;
      double value = kept.front().has_first_samples ? 1.0 : 0.0;
      int updates = 0;
      for (int step = 0; step < steps; ++step) {
        for (const Instruction& in : program.body) {
          if (in.kernel != Kernel::running_statistics || in.name != "stem.norm") continue;
          EXPECT_EQ(in.outputs.back().buffer, kept.front().variance);
          value = in.attributes.real("decay") * value +
                  in.attributes.real("weight") * statistic(step, event_of(program, in, c));
          ++updates;
        }
      }
      EXPECT_EQ(updates, steps * c.micro_batches);
      sum += value;
    }
    EXPECT_EQ(owners, 1);
    EXPECT_NEAR(sum, of_one_rank(steps, c.micro_batches * c.parts), 1e-12 * sum);
  }
}

TEST(NormStatistics, WhatIsComputedAgainUpdatesNothing) {
  const ModelGraph graph = build_model({.name = "resnet-nano"});
  Plan plan;
  plan.strategy = "single";
  plan.mesh = {.nodes = 1, .ranks_per_node = 1, .axes = {{"data", 1}}};
  plan.global_batch = 4;
  const auto updates = [&] {
    const Program program = lower(plan, graph, 0, [](const Program&, const Instruction&) { return 0; });
    return std::ranges::count(program.body, Kernel::running_statistics, &Instruction::kernel);
  };
  const auto without = updates();
  EXPECT_EQ(without, std::ranges::count(graph.operators, OperatorKind::batch_norm, &Operator::kind));
  plan.recompute = Recompute::whole_block;
  EXPECT_EQ(updates(), without);
}

}  // namespace
}  // namespace strata::test_norm_statistics
