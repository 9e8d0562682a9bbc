/// @file
/// A pipeline without a flush trains θ_{t+1} = θ_t - γ_t ∇f_t(θ_{t-1}), evaluated without any of strata, bit for bit
/// where numbers are exact; with as many micro-batches as stages it is `cdp-v1` in a pipeline.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "mpi/exec/cyclic_training.hpp"

namespace strata::test_two_buffered_weights {
namespace {

class TwoBufferedWeights : public Cyclic {
 protected:
  /// @p samples of a micro-batch over all replicas.
  static Plan pipeline(int micro_batches, int stages, int replicas, int samples) {
    Plan plan;
    plan.strategy = "2bw";
    plan.mesh.ranks_per_node = stages * replicas;
    plan.mesh.axes = {{"stage", stages}, {"data", replicas}};
    plan.stages.count = stages;
    plan.schedule = {.kind = ScheduleKind::two_buffered_weights, .micro_batches = micro_batches};
    plan.global_batch = std::int64_t{micro_batches} * samples;
    plan.optimizer = {.kind = "sgd", .momentum = 0.5};
    return plan;
  }
  /// Stages and replicas that this world can have; of three there is no exact mean.
  std::vector<std::pair<int, int>> meshes() const {
    std::vector<std::pair<int, int>> all = {{world.size(), 1}};
    if (world.size() == 4) all.emplace_back(2, 2);
    return all;
  }
};

FreshTable all_of(char digit, int micro_batches, int stages) {
  return FreshTable(static_cast<std::size_t>(micro_batches), std::string(static_cast<std::size_t>(stages), digit));
}

TEST_F(TwoBufferedWeights, ExactInputsGiveTheRulesValues) {
  constexpr int samples = 2;
  for (const auto& [stages, replicas] : meshes()) {
    for (const int micro_batches : {2, 4}) {
      if (micro_batches < stages) continue;
      const int num_layers = stages + 1;
      const ModelGraph graph = even_mlp(num_layers);
      test::CyclicTraining rule{.initial = Chains::network(num_layers),
                                .stage_of_layer = stages_of_layers(graph, {.count = stages}),
                                .fresh = all_of('0', micro_batches, stages),
                                .steps = 5,
                                .samples = samples,
                                .image = Chains::image,
                                .rate = [n = micro_batches](int step) { return samples * n / (step % 2 + 1.0); },
                                .momentum = 0.5};
      const test::CyclicResult expected = evaluate_cyclic(rule);
      ASSERT_TRUE(expected.is_exact);
      rule.fresh = all_of('1', micro_batches, stages);
      ASSERT_NE(evaluate_cyclic(rule).network, expected.network) << "the images tell the rules apart";
      for (const Recompute recompute : {Recompute::none, Recompute::block}) {
        Plan plan = pipeline(micro_batches, stages, replicas, samples);
        plan.recompute = recompute;
        expect_equal(train_plan(training_of(rule, graph), plan, world, engine), expected,
                     fmt::format("{} stages, {} replicas, {} micro-batches", stages, replicas, micro_batches));
      }
    }
  }
}

TEST_F(TwoBufferedWeights, WithAsManyMicroBatchesAsStagesEveryBitIsCdpV1s) {
  const int n = world.size(), num_layers = n + 1;
  const ModelGraph graph = even_mlp(num_layers);
  test::CyclicTraining rule = real_training(graph, num_layers, never_fresh(n, n));
  const auto samples = static_cast<int>(rule.samples);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Plan cyclic = cyclic_plan(n, n, "none", Ranks::one_a_stage, samples);
    Plan ours = pipeline(n, n, 1, samples);
    for (Plan* plan : {&cyclic, &ours}) {
      plan->dtypes = {dtype, dtype};
      plan->optimizer.weight_decay = 0.01;
    }
    const Trained expected = train_plan(training_of(rule, graph), cyclic, world, engine);
    const Trained found = train_plan(training_of(rule, graph), ours, world, engine);
    EXPECT_EQ(found.parameters, expected.parameters);
    EXPECT_EQ(found.losses, expected.losses);
  }
}

TEST_F(TwoBufferedWeights, TwentyStepsOfRealNumbersAreTheRulesWithinRounding) {
  const int stages = world.size(), micro_batches = stages + 1, num_layers = stages + 1;
  const ModelGraph graph = even_mlp(num_layers);
  const test::CyclicTraining rule = real_training(graph, num_layers, all_of('0', micro_batches, stages));
  const Plan plan = pipeline(micro_batches, stages, 1, static_cast<int>(rule.samples));
  expect_equal(train_plan(training_of(rule, graph), plan, world, engine), evaluate_cyclic(rule), "real", 1e-5);
}

/// One stage on one rank has the rule too: what has stages adds up in its order, whatever the dtype, dropout and
/// recomputation.
TEST_F(TwoBufferedWeights, EveryBitIsThatOfOneStage) {
  const int stages = world.size();
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const double dropout : {0.0, 0.1}) {
      const ModelGraph graph = build_model({.name = "gpt-nano",
                                            .layers = 5,
                                            .vocabulary = 101,
                                            .sequence_length = 9,
                                            .dropout = dropout,
                                            .tied_head = false});
      Training training{.graph = graph, .plan = {}};
      training.vocabulary = 101;
      training.steps = 4;
      training.learning_rate = 0.05;
      const auto trained = [&](int on, Recompute recompute) {
        Plan plan = pipeline(2 * stages, on, 1, 2);
        plan.dtypes = {dtype, dtype};
        plan.recompute = recompute;
        plan.optimizer.weight_decay = 0.01;
        return train_plan(training, plan, world, engine);
      };
      const Trained reference = trained(1, Recompute::none);
      for (const Recompute recompute : {Recompute::none, Recompute::block}) {
        const Trained ours = trained(stages, recompute);
        for (const auto& [name, values] : ours.parameters) {
          EXPECT_EQ(values, reference.parameters.at(name)) << name << ", dropout " << dropout;
        }
        EXPECT_EQ(ours.losses, reference.losses);
      }
    }
  }
}

}  // namespace
}  // namespace strata::test_two_buffered_weights
