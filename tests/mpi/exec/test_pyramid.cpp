/// @file
/// Cyclic data parallelism on a pyramid of ranks trains what its rule says, evaluated without any of strata, and bit
/// for bit what one rank does. Of N(N+1)/2 ranks.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "ir/plan/stage_pyramid.hpp"
#include "mpi/exec/cyclic_training.hpp"
#include "mpi/exec/staged_networks.hpp"

namespace strata::test_pyramid {
namespace {

class Pyramid : public Cyclic {
 protected:
  /// Stages, and micro-batches.
  int num_stages() const {
    int n = 1;
    while (StagePyramid{n}.num_ranks() < world.size()) ++n;
    return n;
  }
  Plan pyramid_plan(const std::string& fresh, int samples) const {
    Plan plan = cyclic_plan(num_stages(), num_stages(), fresh, Ranks::one, samples);
    plan.mesh = {.ranks_per_node = world.size(), .axes = {{"stage", num_stages()}}, .placement = "pyramid"};
    return plan;
  }
};

/// Version 1, version 2, and between them a few that differ from each other, at random.
std::vector<FreshTable> rules_in_time(int n) {
  const FreshTable most = freshest(n, n);
  std::vector<FreshTable> tables = {never_fresh(n, n), most};
  for (std::uint64_t t = 0; t < 6; ++t) {
    FreshTable table = most;
    std::uint64_t cell = 0;
    for (std::string& row : table) {
      for (char& digit : row) {
        if (RandomStream{.seed = 7, .stream = t}.uniform(cell++) < 0.4) digit = '0';
      }
    }
    if (std::ranges::find(tables, table) == tables.end()) tables.push_back(table);
  }
  return tables;
}

/// So many training steps that replicas take the same micro-batches again, which they do after 1, 2, 3. Within rounding
/// for three micro-batches, whose mean divides by three.
TEST_F(Pyramid, ExactInputsGiveTheRulesValues) {
  const int n = num_stages();
  const double tolerance = n == 3 ? 1e-5 : 0.0;
  const int num_layers = n + 1;
  const ModelGraph graph = even_mlp(num_layers);
  constexpr int samples = 2;
  std::map<test::DenseNetwork, FreshTable> seen;
  const std::vector<FreshTable> tables = rules_in_time(n);
  EXPECT_GE(tables.size(), 5U);
  for (std::size_t t = 0; t < tables.size(); ++t) {
    const test::CyclicTraining rule = chain_rule(graph, num_layers, {.count = n}, tables[t], samples, 4);
    const test::CyclicResult expected = evaluate_cyclic(rule);
    ASSERT_EQ(expected.is_exact, tolerance == 0.0) << joined(tables[t]);
    EXPECT_TRUE(seen.try_emplace(expected.network, tables[t]).second) << "the images do not tell two rules apart";
    Plan plan = pyramid_plan(joined(tables[t]), samples);
    plan.schedule.sum = t % 2 == 0 ? "inside" : "after";
    plan.overlap.bucket_bytes = t % 3 == 0 ? 100 : 1 << 20;
    expect_equal(train_plan(training_of(rule, graph), plan, world, engine), expected, joined(tables[t]), tolerance);
  }
}

/// Whatever the optimizer, the dtype, dropout and recomputation, in the backward's kernels or behind these.
TEST_F(Pyramid, EqualBitsOnRealModels) {
  const int n = num_stages();
  for (const RealModel& model : staged_models()) {
    const std::string name = model.name;
    if (name == "gpt" || (n > 2 && name != "gpt untied" && name != "vgg" && name != "vit"))
      continue;  // a tied head is refused
    for (const char* fresh : {"none", "v2"}) {
      const bool is_bf16 = (std::string_view(fresh) == "v2") == (name != "vgg");
      Training training = with(build_model(model.options), 2 * n, n);
      training.steps = n == 4 ? 7 : 4;
      training.rate = [](int step) { return 0.05 / (step + 1.0); };
      const auto trained = [&](Plan plan) {
        plan.schedule.sum = is_bf16 ? "after" : "inside";
        plan.dtypes = {is_bf16 ? DType::bf16 : DType::f32, is_bf16 ? DType::bf16 : DType::f32};
        plan.recompute = is_bf16 ? Recompute::none : Recompute::block;
        plan.optimizer = {.kind = is_bf16 ? "adamw" : "sgd", .momentum = 0.5, .weight_decay = 0.01};
        plan.overlap.bucket_bytes = 4096;
        return train_plan(training, plan, world, engine);
      };
      const Trained reference = trained(cyclic_plan(n, n, fresh, Ranks::one, 2));
      const Trained ours = trained(pyramid_plan(fresh, 2));
      EXPECT_FALSE(ours.parameters.empty()) << "every replica updates";
      for (const auto& [parameter, values] : ours.parameters) {
        EXPECT_EQ(values, reference.parameters.at(parameter)) << parameter << ", " << name << ", " << fresh;
        EXPECT_NE(values, reference.initial.at(parameter)) << parameter << " must have moved";
      }
      EXPECT_EQ(ours.losses, reference.losses) << name << ", " << fresh;
    }
  }
}

/// Twenty steps against the evaluation in double precision.
TEST_F(Pyramid, RealInputsGiveTheRulesValues) {
  const int n = num_stages();
  const int num_layers = n + 1;
  const ModelGraph graph = even_mlp(num_layers);
  for (const FreshTable& fresh : {never_fresh(n, n), freshest(n, n)}) {
    for (const bool is_adam : {false, true}) {
      test::CyclicTraining rule = real_training(graph, num_layers, fresh);
      rule.weight_decay = 0.0625;
      if (is_adam) {
        rule.adam = test::Adam{.epsilon = 1e-3};  // no step is as long as the rate whatever its gradient
        rule.rate = [](int) { return 0.0078125; };
      }
      const test::CyclicResult expected = evaluate_cyclic(rule);
      Plan plan = pyramid_plan(joined(fresh), static_cast<int>(rule.samples));
      plan.optimizer.weight_decay = rule.weight_decay;
      if (is_adam) plan.optimizer = {.kind = "adamw", .epsilon = rule.adam->epsilon, .weight_decay = 0.0625};
      const Trained ours = train_plan(training_of(rule, graph), plan, world, engine);
      const std::string what = fmt::format("{}, {}", joined(fresh), plan.optimizer.kind);
      int num_compared = 0;
      for (int l = 0; l < num_layers; ++l) {
        const auto held = ours.parameters.find(name_of_layer(l, num_layers) + ".weight");
        if (held == ours.parameters.end()) continue;
        const test::Values& weight = expected.network[static_cast<std::size_t>(l)].weight;
        const std::vector<float> rounded(weight.begin(), weight.end());
        EXPECT_LE(relative_difference(held->second, rounded), 1e-5) << held->first << ", " << what;
        ++num_compared;
      }
      EXPECT_GE(num_compared, 1) << world.rank();
      for (std::size_t step = 0; step < expected.losses.size(); ++step) {
        EXPECT_NEAR(ours.losses[step], expected.losses[step], 1e-5 * expected.losses[step]) << "step " << step;
      }
    }
  }
}

}  // namespace
}  // namespace strata::test_pyramid
