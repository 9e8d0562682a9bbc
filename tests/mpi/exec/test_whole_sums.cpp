/// @file
/// Products whose partial sums all ranks have (sum = all_reduce): what one rank trains, in every degree, beside
/// products whose sums are scattered, where degrees change from layer to layer, and with all else that a plan decides.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "mpi/exec/expect_same.hpp"
#include "mpi/exec/laid_out.hpp"
#include "planners/layouts/candidates.hpp"
#include "support/deep.hpp"

namespace strata::test_whole_sums {
namespace {

constexpr PartialSums whole = PartialSums::all_reduce, scattered = PartialSums::scatter;

class WholeSums : public LaidOut {
 protected:
  std::vector<OperatorRule> rules_of(const TensorRanks& ranks, std::string_view model) const {
    return strata::rules_of(AtomicAxes(mesh()), ranks, model);
  }
  Training training_of(const char* name, bool is_tied) const {
    RealModel model = transformer(name);
    model.options.tied_head = is_tied;
    Training training = real(model, 24);
    training.vocabulary = 120;
    training.steps = 2;
    return training;
  }
};

/// Sums of eighths have no rounding. By @p i and @p j every degree of two layers, the head's follows.
TEST_F(WholeSums, EveryPairOfDegreesIsExactOnExactInputs) {
  const std::vector<Layout> layouts = all_layouts(grid());
  const std::vector<std::array<PartialSums, 3>> ways = {
      {whole, whole, whole}, {whole, scattered, whole}, {scattered, whole, scattered}};
  for (const int micro_batches : {1, 2}) {
    const Training training = exact_for_layouts(micro_batches);
    const Trained reference = alone(training);
    for (std::size_t i = 0; i < layouts.size(); ++i) {
      for (std::size_t j = 0; j < layouts.size(); ++j) {
        const std::size_t all = is_deep() ? 1 : size() > 4 ? 9 : 2;
        if ((i + j) % (micro_batches > 1 ? 9 : all) != 0) continue;
        const Layout& last = layouts[(i + 3 * j) % layouts.size()];
        for (const auto& [first_sum, second_sum, last_sum] : ways) {
          const Plan plan = laid_out(training, {{.match = "block[0].linear", .layout = layouts[i], .sum = first_sum},
                                                {.match = "block[1].linear", .layout = layouts[j], .sum = second_sum},
                                                {.match = "head", .layout = last, .sum = last_sum}});
          const std::string what = fmt::format("({}) {}, ({}) {}, ({}) {}, M = {}", to_string(layouts[i]),
                                               to_string(first_sum), to_string(layouts[j]), to_string(second_sum),
                                               to_string(last), to_string(last_sum), micro_batches);
          const Trained ours = train_plan(training, plan, world, engine);
          for (const auto& [parameter, values] : ours.parameters) {
            EXPECT_EQ(values, reference.parameters.at(parameter)) << parameter << ", " << what;
          }
          // log(classes) is no binary fraction: its sum depends on the order.
          EXPECT_NEAR(ours.losses.front(), reference.losses.front(), 1e-6F * reference.losses.front()) << what;
          if (HasFailure()) return;
        }
      }
    }
  }
}

/// Rising, falling and to and fro: where a layer has more tensor ranks than the one before, samples are gathered, and
/// where it has fewer each rank goes on with its own.
TEST_F(WholeSums, TransformersWithOtherDegreesInEveryLayer) {
  const int p = size(), half = p % 2 == 0 ? p / 2 : 1;
  for (const char* name : {"gpt", "llama"}) {
    for (const bool is_tied : {false, true}) {
      const Training training = training_of(name, is_tied);
      const Trained reference = alone(training);
      for (const TensorRanks& ranks :
           {TensorRanks{p, p, p, p, p}, TensorRanks{half, half, half, half, half}, TensorRanks{1, 1, half, half, p},
            TensorRanks{p, p, half, half, 1}, TensorRanks{half, p, 1, half, p}, TensorRanks{p, 1, p, 1, half}}) {
        const Plan plan = laid_out(training, with_sums(rules_of(ranks, name), whole));
        expect_same(train_plan(training, plan, world, engine), reference,
                    fmt::format("{}{} by {}, {}, {}, {}, {}", name, is_tied ? " with a tied head" : "", ranks.embedding,
                                ranks.attention, ranks.mlp, ranks.attention_of_last, ranks.mlp_of_last));
        if (HasFailure()) return;
      }
    }
  }
}

/// Attention with sums that are whole, the rest of the blocks with sums that are scattered, and the other way round.
TEST_F(WholeSums, BesideScatteredOnesInOneModel) {
  const int p = size(), half = p % 2 == 0 ? p / 2 : 1;
  for (const char* name : {"gpt", "llama"}) {
    const Training training = training_of(name, false);
    const Trained reference = alone(training);
    for (const TensorRanks& ranks : {TensorRanks{p, p, p, p, p}, TensorRanks{half, half, p, 1, half}}) {
      for (const char* pattern : {"*.attn.*", "*.mlp.*", "embedding", "block[1].*"}) {
        std::vector<OperatorRule> rules = rules_of(ranks, name);
        rules.push_back({.match = pattern, .sum = whole});
        expect_same(train_plan(training, laid_out(training, rules), world, engine), reference,
                    fmt::format("{}, {} by {} and {}", name, pattern, ranks.attention, ranks.mlp));
      }
    }
  }
}

TEST_F(WholeSums, VisionTransformersWithOtherDegreesInEveryLayer) {
  const int p = size(), half = p % 2 == 0 ? p / 2 : 1;
  Training training = real(vision_transformer(), 24);
  training.classes = 24;
  training.steps = 2;
  const Trained reference = alone(training);
  for (const TensorRanks& ranks : {TensorRanks{p, p, p, p, p}, TensorRanks{1, half, p, 1, half}}) {
    std::vector<OperatorRule> rules = with_sums(rules_of(ranks, "vit"), whole);
    rules.push_back({.match = "patch", .layout = layout_of(AtomicAxes(mesh()), p, 1)});
    expect_same(train_plan(training, laid_out(training, rules), world, engine), reference,
                fmt::format("vit by {}, {}, {}", ranks.embedding, ranks.attention, ranks.mlp));
  }
}

TEST_F(WholeSums, BehindConvolutions) {
  const AtomicAxes axes(mesh());
  const int p = size(), half = p % 2 == 0 ? p / 2 : 1;
  const RealModel vgg{
      "vgg", {.name = "vgg-nano", .hidden = 48, .dropout = 0.25, .num_classes = 24, .widths = {8, 16, 16, 24, 48}}};
  Training training = real(vgg, 24);
  training.classes = 24;
  training.steps = 2;
  training.learning_rate = 0.05;
  const Trained reference = alone(training);
  for (const auto& [columns, rows, last] :
       {std::tuple{p, p, p}, std::tuple{half, half, 1}, std::tuple{1, p, half}, std::tuple{half, 1, p}}) {
    const std::vector<OperatorRule> rules = {
        {.match = "*", .layout = layout_of(axes, p, 1), .sum = whole},
        {.match = "classifier.fc1", .layout = layout_of(axes, p / columns, columns)},
        {.match = "classifier.fc2", .layout = layout_of(axes, p / rows, 1)},
        {.match = "classifier.fc3", .layout = layout_of(axes, p / last, last)}};
    expect_same(train_plan(training, laid_out(training, rules), world, engine), reference,
                fmt::format("by {}, {}, {}", columns, rows, last));
  }
}

/// Micro-batches, clipping and 16-bit numbers as one rank has them; recomputation and shared states change no bit.
TEST_F(WholeSums, GoWithAccumulationRecomputationSharedStatesClippingAndBf16) {
  const int t = size() % 4 == 0 ? size() / 2 : size();
  const std::vector<OperatorRule> rules = with_sums(rules_of({t, t, t, t, t}, "gpt"), whole);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Training training = training_of("gpt", true);
    training.plan.schedule.micro_batches = 2;
    training.plan.dtypes = {dtype, dtype};
    const Trained reference = alone(training);
    const Trained plain = train_plan(training, laid_out(training, rules), world, engine);
    if (dtype == DType::f32) {
      expect_same(plain, reference, "gpt");
      // Norms' weights and biases of rows are held by all ranks of a sum: together they count once.
      Training clipped = training;
      clipped.plan.optimizer.clip_norm = 0.5;
      expect_same(train_plan(clipped, laid_out(clipped, rules), world, engine), alone(clipped), "clipped");
    } else {
      for (std::size_t i = 0; i < plain.losses.size(); ++i) {
        EXPECT_NEAR(plain.losses[i], reference.losses[i], 0.01 * reference.losses[i]) << "step " << i;
      }
    }
    std::vector<OperatorRule> sharded_rules = rules;
    for (OperatorRule& rule : sharded_rules) rule.state = StateFactors{.p = {}, .g = {}, .os = rule.layout->p0};
    Plan sharded = laid_out(training, sharded_rules);
    sharded.recompute = Recompute::block;
    sharded.optimizer.spread = "all_gather";
    const Trained ours = train_plan(training, sharded, world, engine);
    for (const auto& [parameter, values] : plain.parameters) {
      EXPECT_EQ(ours.parameters.at(parameter), values) << parameter << ", " << to_string(dtype);
    }
    EXPECT_EQ(ours.losses, plain.losses);
  }
}

}  // namespace
}  // namespace strata::test_whole_sums
