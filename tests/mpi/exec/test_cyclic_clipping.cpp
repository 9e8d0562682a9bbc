/// @file
/// Cyclic data parallelism whose gradients are clipped: stages are updated at once, when the norm of all gradients of a
/// step is known. Against the rule's evaluation, and one rank against a rank a micro-batch, bit for bit.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "mpi/exec/cyclic_training.hpp"
#include "mpi/exec/staged_networks.hpp"

namespace strata::test_cyclic_clipping {
namespace {

using CyclicClipping = Cyclic;

/// The norm is known where the sums are: with a rank a micro-batch on the last one alone.
void expect_norm_where_sums_are(const Trained& ours, Ranks ranks, const comm::World& world) {
  const bool has_sums = ranks != Ranks::one_a_micro_batch || world.rank() + 1 == world.size();
  EXPECT_EQ(ours.program.norm_buffer >= 0, has_sums) << to_string(ranks);
}

/// Twenty steps, some of which are clipped. The last micro-batch may read what its own rank has just updated.
TEST_F(CyclicClipping, RealInputsGiveTheRulesValues) {
  const int n = world.size();
  const int num_layers = n + 1;
  const ModelGraph graph = even_mlp(num_layers);
  for (const FreshTable& fresh : {never_fresh(n, n), freshest_behind_norm(n, n)}) {
    test::CyclicTraining rule = real_training(graph, num_layers, fresh);
    rule.rate = [](int) { return 0.0625; };
    const test::CyclicResult unclipped = evaluate_cyclic(rule);
    test::Values norms = unclipped.norms;
    std::ranges::nth_element(norms, norms.begin() + 10);
    rule.clip_norm = norms[10];  // half of them are longer
    const test::CyclicResult expected = evaluate_cyclic(rule);
    EXPECT_GT(relative_difference_of(unclipped.network, expected.network), 1e-3);
    const Training training = training_of(rule, graph);
    for (const Ranks ranks : {Ranks::one, Ranks::one_a_stage, Ranks::one_a_micro_batch}) {
      const std::string what = fmt::format("{} on {}", joined(fresh), to_string(ranks));
      Plan plan = cyclic_plan(n, n, joined(fresh), ranks, static_cast<int>(rule.samples));
      plan.optimizer.clip_norm = rule.clip_norm;
      const Trained ours = train_plan(training, plan, world, engine);
      expect_norm_where_sums_are(ours, ranks, world);
      for (int l = 0; l < num_layers; ++l) {
        const auto held = ours.parameters.find(name_of_layer(l, num_layers) + ".weight");
        if (held == ours.parameters.end()) continue;
        const test::Values& weight = expected.network[static_cast<std::size_t>(l)].weight;
        const std::vector<float> rounded(weight.begin(), weight.end());
        EXPECT_LE(relative_difference(held->second, rounded), 1e-5) << held->first << ", " << what;
      }
      for (std::size_t step = 0; step < expected.norms.size(); ++step) {
        EXPECT_NEAR(ours.norms[step], expected.norms[step], 1e-5 * expected.norms[step]) << what << ", " << step;
      }
    }
  }
}

TEST_F(CyclicClipping, OneRankAndARankAMicroBatchHaveEqualBits) {
  const int n = world.size();
  for (const RealModel& model : staged_models()) {
    if (std::string_view(model.name) == "gpt") continue;  // its tied head is refused
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Training training = with(build_model(model.options), 2 * n, n);
      training.steps = 3;
      const auto trained = [&](Ranks ranks, double clip_norm) {
        Plan plan = cyclic_plan(n, n, "none", ranks, 2);
        plan.dtypes = {dtype, dtype};
        plan.optimizer.clip_norm = clip_norm;
        return train_plan(training, plan, world, engine);
      };
      constexpr double clip_norm = 0.125;
      const Trained reference = trained(Ranks::one, clip_norm);
      const Trained ours = trained(Ranks::one_a_micro_batch, clip_norm);
      EXPECT_GT(reference.norms.front(), clip_norm) << "nothing is clipped";
      expect_norm_where_sums_are(ours, Ranks::one_a_micro_batch, world);
      EXPECT_EQ(ours.norms, reference.norms) << model.name;
      for (const auto& [name, values] : ours.parameters) {
        EXPECT_EQ(values, reference.parameters.at(name)) << name << ", " << model.name;
        EXPECT_NE(values, reference.initial.at(name)) << name << " must have moved";
      }
    }
  }
}

}  // namespace
}  // namespace strata::test_cyclic_clipping
