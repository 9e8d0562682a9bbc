/// @file
/// Tensor layouts train what one rank trains: every degree of every layer on exact inputs with ==, real models within
/// rounding, with accumulation, recomputation, bf16 and sharded states.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>

#include "mpi/exec/expect_same.hpp"
#include "mpi/exec/laid_out.hpp"
#include "partition/tensor_layout.hpp"
#include "planners/layouts/candidates.hpp"
#include "support/deep.hpp"

namespace strata::test_layouts {
namespace {

using Layouts = LaidOut;

TEST_F(Layouts, EveryPairOfDegreesIsEqualToOneRank) {
  const bool is_exact = 8 % size() == 0;
  const std::vector<Layout> layouts = all_layouts(grid());
  for (const int micro_batches : {1, 2}) {
    const Training training = is_exact ? exact_for_layouts(micro_batches) : rounded_for_layouts(micro_batches);
    const Trained reference = alone(training);
    for (std::size_t i = 0; i < layouts.size(); ++i) {
      for (std::size_t j = 0; j < layouts.size(); ++j) {
        // Every pair of 4 ranks once, and every degree with further micro-batches; of more ranks' pairs a ninth, or
        // all.
        if ((micro_batches > 1 || (size() > 4 && !is_deep())) && (i + j) % 9 != 0) continue;
        const Layout& last = layouts[(i + 3 * j) % layouts.size()];
        const Trained ours = train_plan(training,
                                        laid_out(training, {{.match = "block[0].linear", .layout = layouts[i]},
                                                            {.match = "block[1].linear", .layout = layouts[j]},
                                                            {.match = "head", .layout = last}}),
                                        world, engine);
        const std::string what = fmt::format("({}), ({}), ({}), M = {}", to_string(layouts[i]), to_string(layouts[j]),
                                             to_string(last), micro_batches);
        if (!is_exact) {
          expect_same(ours, reference, what);
        } else {
          for (const auto& [parameter, values] : ours.parameters) {
            EXPECT_EQ(values, reference.parameters.at(parameter)) << parameter << ", " << what;
          }
          // log(classes) is no binary fraction: its sum depends on the order.
          EXPECT_NEAR(ours.losses.front(), reference.losses.front(), 1e-6F * reference.losses.front()) << what;
        }
        if (HasFailure()) return;
      }
    }
  }
}

TEST_F(Layouts, TransformersAreEqualUpToRounding) {
  const AtomicAxes axes(mesh());
  const int p = size();
  std::vector<TransformerDegrees> all = {{p, 1, 1, 1, 1, 1, 1}, {1, p, p, 1, p, 1, p}, {1, 1, 1, p, 1, p, 1}};
  if (p % 4 == 0) all.push_back({p / 4, 2, 4, 1, 2, 2, 2});
  if (p % 2 == 0) all.push_back({p / 2, 1, 2, 1, 2, 1, 2});
  for (const char* name : {"gpt", "llama"}) {
    Training training = real(transformer(name), 24);
    training.vocabulary = 120;
    training.steps = 2;
    const Trained reference = alone(training);
    for (const TransformerDegrees& degrees : all) {
      const Trained ours = train_plan(training, laid_out(training, rules_of(axes, degrees, name)), world, engine);
      expect_same(ours, reference, fmt::format("{} p0 = {}, p1 = {} {}", name, degrees.p0, degrees.qkv, degrees.fc1));
    }
  }
}

/// Layers whose samples are split over other ranks than their neighbours': sums of two homes, exchanges everywhere. The
/// vocabulary stays whole, so that embedding and head are data parallel.
TEST_F(Layouts, TransformersWithAnotherSplitOfSamplesInEveryLayer) {
  const AtomicAxes axes(mesh());
  const int p = size();
  const int half = p % 2 == 0 ? p / 2 : p, rest = p / half;
  for (const char* name : {"gpt", "llama"}) {
    Training training = real(transformer(name), 24);
    training.vocabulary = 120;
    training.steps = 2;
    const Trained reference = alone(training);
    const auto rules = [&](std::array<std::pair<int, int>, 4> degrees) {
      std::vector<OperatorRule> all = rules_of(axes, {p, 1, 1, 1, 1, 1, 1}, name);
      for (std::size_t i = 0; i < degrees.size(); ++i) {
        all[i + 1].layout = layout_of(axes, degrees[i].first, degrees[i].second);
      }
      return all;
    };
    for (const auto& degrees : {std::array<std::pair<int, int>, 4>{{{half, rest}, {half, 1}, {1, p}, {1, 1}}},
                                {{{1, half}, {half, rest}, {half, 1}, {p, 1}}},
                                {{{half, 1}, {p, 1}, {p, 1}, {1, half}}}}) {
      const Trained ours = train_plan(training, laid_out(training, rules(degrees)), world, engine);
      expect_same(ours, reference, fmt::format("{} qkv p0 = {} p1 = {}", name, degrees[0].first, degrees[0].second));
    }
  }
}

/// Convolutions data parallel, dense layers in degrees that change from one to the next.
TEST_F(Layouts, DenseLayersBehindConvolutions) {
  const AtomicAxes axes(mesh());
  const int p = size();
  const RealModel vgg{
      "vgg", {.name = "vgg-nano", .hidden = 48, .dropout = 0.25, .num_classes = 24, .widths = {8, 16, 16, 24, 48}}};
  Training training = real(vgg, 24);
  training.classes = 24;
  training.steps = 2;
  training.learning_rate = 0.05;
  const Trained reference = alone(training);
  const int half = p % 2 == 0 ? 2 : 1;
  const std::vector<std::array<std::pair<int, int>, 3>> all = {{{{p, 1}, {p, 1}, {p, 1}}},
                                                               {{{1, half}, {half, 1}, {1, 1}}},
                                                               {{{1, p}, {1, 1}, {1, p}}},
                                                               {{{1, 1}, {1, half}, {p / half, half}}},
                                                               {{{p / half, 1}, {1, half}, {half, 1}}}};
  for (const auto& degrees : all) {
    std::vector<OperatorRule> rules = {{.match = "*", .layout = layout_of(axes, p, 1)}};
    for (int layer = 0; layer < 3; ++layer) {
      const auto [p0, p1] = degrees[static_cast<std::size_t>(layer)];
      rules.push_back({.match = fmt::format("classifier.fc{}", layer + 1), .layout = layout_of(axes, p0, p1)});
    }
    const Trained ours = train_plan(training, laid_out(training, rules), world, engine);
    expect_same(ours, reference, fmt::format("fc1 p0 = {} p1 = {}", degrees[0].first, degrees[0].second));
  }
}

/// Rows of an image behind its class token, and the one of them that is classified, in degrees of every kind.
TEST_F(Layouts, VisionTransformers) {
  const AtomicAxes axes(mesh());
  const int p = size();
  const int half = p % 2 == 0 ? 2 : 1;
  Training training = real(vision_transformer(), 24);
  training.classes = 24;
  training.steps = 2;
  const Trained reference = alone(training);
  for (const TransformerDegrees& degrees : {TransformerDegrees{p, 1, 1, 1, 1, 1, 1},
                                            {1, 1, p, 1, p, 1, p},
                                            {1, 1, 1, p, 1, p, 1},
                                            {p / half, 1, half, 1, 1, half, 1}}) {
    std::vector<OperatorRule> rules = rules_of(axes, degrees, "vit");
    rules.push_back({.match = "patch", .layout = layout_of(axes, p, 1)});
    const Trained ours = train_plan(training, laid_out(training, rules), world, engine);
    expect_same(ours, reference, fmt::format("vit p0 = {} qkv p1 = {}", degrees.p0, degrees.qkv));
  }
}

/// What else a plan decides, with layouts: micro-batches, recomputation, sharded states, clipping, 16-bit numbers.
TEST_F(Layouts, GoWithAccumulationRecomputationShardedStatesClippingAndBf16) {
  const AtomicAxes axes(mesh());
  const int p = size();
  const int p0 = p % 4 == 0 ? p / 2 : p;
  const int p1 = p / p0;
  // Many ranks share few cores: there one model sees all of it together.
  const bool is_crowded = p > 2;
  for (const char* name : {"gpt", "llama"}) {
    if (is_crowded && name != std::string_view("gpt")) continue;
    const TransformerDegrees degrees{p0, 1, p1, 1, p1, 1, p1};
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Training training = real(transformer(name), 24);
      training.vocabulary = 120;
      training.steps = 2;
      training.plan.schedule.micro_batches = 2;
      training.plan.dtypes = {dtype, dtype};
      const Trained reference = alone(training);
      const Trained plain = train_plan(training, laid_out(training, rules_of(axes, degrees, name)), world, engine);
      if (dtype == DType::f32) {
        expect_same(plain, reference, name);
      } else {
        for (std::size_t i = 0; i < plain.losses.size(); ++i) {
          EXPECT_NEAR(plain.losses[i], reference.losses[i], 0.01 * reference.losses[i]) << name << " step " << i;
        }
      }
      // Neither recomputation nor sharded states change a bit.
      std::vector<OperatorRule> sharded = rules_of(axes, degrees, name);
      for (OperatorRule& rule : sharded) {
        if (rule.match == "*") continue;
        rule.state = StateFactors{.p = {}, .g = {}, .os = rule.layout->p0};
      }
      if (dtype == DType::f32) {
        // Of every part of a gradient its copies together count one in the norm.
        Training clipped = training;
        clipped.plan.optimizer.clip_norm = 0.5;
        const Trained clipped_alone = alone(clipped);
        for (const std::vector<OperatorRule>& rules : {sharded, rules_of(axes, degrees, name)}) {
          expect_same(train_plan(clipped, laid_out(clipped, rules), world, engine), clipped_alone, name);
        }
      }
      for (const bool shards : {false, true}) {
        for (const Recompute recompute : {Recompute::none, Recompute::block}) {
          if (is_crowded && (!shards || recompute == Recompute::none)) continue;
          Plan plan = laid_out(training, shards ? sharded : rules_of(axes, degrees, name));
          plan.recompute = recompute;
          plan.optimizer.spread = "all_gather";
          const Trained ours = train_plan(training, plan, world, engine);
          for (const auto& [parameter, values] : plain.parameters) {
            std::vector<float> theirs = ours.parameters.at(parameter);
            EXPECT_EQ(theirs, values) << parameter << ", " << name << (shards ? ", sharded" : "");
          }
          EXPECT_EQ(ours.losses, plain.losses) << name;
        }
      }
    }
  }
}

}  // namespace
}  // namespace strata::test_layouts
