/// @file
/// Operators in slices train what replicas train: exact inputs compared with ==, real models within rounding; measured
/// memory is the Program's; what one splitting saved another one goes on from.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "mpi/exec/sharding.hpp"
#include "partition/operator_splitting.hpp"
#include "support/held_bytes.hpp"

namespace strata::test_operator_splitting {
namespace {

class OperatorSplitting : public Sharding {
 protected:
  StateFactors zdp() const { return slice_factors(mesh(), "zdp"); }
  Mesh mesh() const { return {.nodes = grid().nodes, .ranks_per_node = grid().in_node, .axes = {{"data", size()}}}; }
  Plan plan(const Training& training, std::vector<OperatorRule> rules) const {
    Plan plan = training.plan;
    plan.strategy = "osdp";
    plan.mesh = mesh();
    plan.operators = std::move(rules);
    return plan;
  }
};

/// Modes that change from slice to slice, beginning with number @p first.
std::vector<std::string> mixed_modes(int slices, int first) {
  constexpr const char* words[] = {"zdp", "dp", "sdp"};
  std::vector<std::string> modes;
  for (int s = 0; s < slices; ++s) modes.emplace_back(words[(s + first) % 3]);
  return modes;
}

TEST_F(OperatorSplitting, IsExactOnExactInputs) {
  for (const int micro_batches : {1, 2}) {
    const Training training = exact(micro_batches);  // widths 7, 12, 4: slices are uneven
    const Trained reference = train(training, "ddp", size(), world, engine);
    std::vector<std::vector<OperatorRule>> all_rules;
    for (const int slices : size() > 4 ? std::vector{3} : std::vector{2, 3, 4, 7}) {
      for (int first = 0; first < 3; ++first) {
        all_rules.push_back({{.match = "*", .slices = slices, .slice_state = mixed_modes(slices, first)}});
      }
      all_rules.push_back({{.match = "*", .state = zdp(), .slices = slices}});
      all_rules.push_back(
          {{.match = "*", .state = zdp()}, {.match = "head", .state = StateFactors{}, .slices = slices}});
      all_rules.push_back({{.match = "block[0].linear", .slices = slices, .slice_state = mixed_modes(slices, 1)},
                           {.match = "head", .state = zdp()}});
    }
    for (std::size_t r = 0; r < all_rules.size(); ++r) {
      for (const bool ahead : {false, true}) {
        Plan split = plan(training, all_rules[r]);
        split.overlap.bucket_bytes = r % 2 == 0 ? 1 : 1 << 20;
        if (ahead) {
          split.overlap.gather = "next_layer";
          split.overlap.gather_backward = "next_module";
          split.overlap.reduce_scatter = "grad_input";
          split.overlap.broadcast = "next_forward";
        }
        const Trained ours = train_plan(training, split, world, engine);
        EXPECT_EQ(ours.initial, reference.initial) << r;
        for (const auto& [parameter, values] : reference.parameters) {
          EXPECT_EQ(ours.parameters.at(parameter), values)
              << parameter << ", rules " << r << ", " << micro_batches << " micro-batches";
        }
        EXPECT_EQ(ours.losses, reference.losses) << r;
      }
    }
  }
}

/// Every linear and embedding in three slices of three modes; a tied head has the modes of its embedding.
std::vector<OperatorRule> every_linear(const ModelGraph& graph) {
  std::vector<OperatorRule> rules;
  int first = 0;
  for (const Operator& op : graph.operators) {
    if (op.kind != OperatorKind::linear && op.kind != OperatorKind::embedding) continue;
    const bool is_tied = op.kind == OperatorKind::embedding || op.name == "head";
    rules.push_back({.match = op.name, .slices = 3, .slice_state = mixed_modes(3, is_tied ? 0 : first++)});
  }
  return rules;
}

TEST_F(OperatorSplitting, RealModelsWithDropoutClippingAndRecomputation) {
  for (const RealModel& model : models()) {
    for (const int micro_batches : size() > 2 ? std::vector{2} : std::vector{1, 2}) {
      Training training = real(model, 8 * micro_batches);
      training.plan.schedule.micro_batches = micro_batches;
      training.steps = 2;
      training.learning_rate = std::string_view(model.name) == "vgg" ? 1e-4 : 0.01;
      training.plan.optimizer.momentum = 0.5;
      training.plan.optimizer.weight_decay = 0.01;
      training.plan.optimizer.clip_norm = 1.0;
      const Trained reference = train(training, "ddp", size(), world, engine);
      for (const Recompute recompute : {Recompute::none, Recompute::block}) {
        for (const char* after : {"keep", "regather"}) {
          if (recompute == Recompute::none && after == std::string_view("regather")) continue;
          Plan split = plan(training, every_linear(training.graph));
          split.recompute = recompute;
          split.gathered_after_recompute = after;
          const Trained ours = train_plan(training, split, world, engine);
          const std::string what = fmt::format("{}, recompute {}, {}, {} micro-batches", model.name,
                                               to_string(recompute), after, micro_batches);
          EXPECT_EQ(ours.initial, reference.initial) << what;
          for (const auto& [parameter, values] : reference.parameters) {
            EXPECT_LE(relative_difference(ours.parameters.at(parameter), values), 1e-5) << parameter << ", " << what;
            EXPECT_NE(values, reference.initial.at(parameter)) << parameter;
          }
          for (std::size_t i = 0; i < reference.losses.size(); ++i) {
            EXPECT_NEAR(ours.losses[i], reference.losses[i], 1e-5 * reference.losses[i]) << what;
            EXPECT_NEAR(ours.norms[i], reference.norms[i], 1e-4 * reference.norms[i]) << what;
          }
        }
      }
    }
  }
}

TEST_F(OperatorSplitting, AdamInMixedPrecision) {
  for (const RealModel& model : models()) {
    if (model.name != std::string_view("gpt")) continue;
    Training training = real(model, 8);
    training.steps = 3;
    training.learning_rate = 1e-3;
    training.plan.optimizer = {.kind = "adamw", .weight_decay = 0.1};
    training.plan.dtypes = {DType::bf16, DType::bf16};
    const Trained reference = train(training, "ddp", size(), world, engine);
    const Trained ours = train_plan(training, plan(training, every_linear(training.graph)), world, engine);
    EXPECT_EQ(ours.initial, reference.initial);
    for (std::size_t i = 0; i < reference.losses.size(); ++i) {
      EXPECT_NEAR(ours.losses[i], reference.losses[i], 1e-2 * reference.losses[i]);
    }
  }
}

/// What the arena touched is the Program's own peak, and a slice at a time is what is gathered.
TEST_F(OperatorSplitting, MeasuredMemoryFallsByWhatIsNotGathered) {
  if (size() != 2) return;
  Training training{.graph = build_model({.name = "mlp", .widths = {8, 960, 960, 4}}), .plan = sgd(size())};
  training.classes = 4;
  const std::int64_t whole = 960 * 960 * 4;
  std::int64_t unsplit_held = 0, touched_before = 0;
  for (const int slices : {0, 2, 4, 8}) {
    const Trained trained = train_plan(
        training, plan(training, {{.match = "block[1].linear", .state = zdp(), .slices = slices}}), world, engine);
    const std::int64_t held =
        most_held(trained.program, {Category::parameter, Category::gradient, Category::communication});
    if (slices == 0) {
      unsplit_held = held;
    } else {
      // The weight and its gradient are there a slice at a time. (The arena may have a gap of a slice.)
      EXPECT_LE(held, unsplit_held - 2 * (whole - whole / slices) + whole / 50) << slices;
      EXPECT_LE(trained.touched_bytes, touched_before - whole / slices / 2) << slices;
    }
    touched_before = trained.touched_bytes;
  }
}

}  // namespace
}  // namespace strata::test_operator_splitting
