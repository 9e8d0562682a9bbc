/// @file
/// Sub-batches that take turns, and every way to recompute, within and across passes: what one rank trains, beside all
/// else that a plan decides; bit for bit what as many micro-batches train, and what is trained without recomputation.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "mpi/exec/expect_same.hpp"
#include "mpi/exec/laid_out.hpp"
#include "planners/layouts/candidates.hpp"
#include "support/deep.hpp"

namespace strata::test_sub_batches {
namespace {

/// How a step goes on in time: nothing of it may be seen in what is trained.
struct Way {
  int sub_batches = 1;
  bool cross_pass = false;
  Recompute recompute = Recompute::none;
};

std::string to_string(const Way& way) {
  return fmt::format("{} sub-batches{}, recompute = {}", way.sub_batches, way.cross_pass ? " across passes" : "",
                     to_string(way.recompute));
}

/// All that are not refused.
std::vector<Way> all_ways() {
  std::vector<Way> ways;
  for (const int sub_batches : {1, 2, 3}) {
    for (const Recompute recompute :
         {Recompute::none, Recompute::block, Recompute::whole_block, Recompute::after_communication}) {
      ways.push_back({sub_batches, false, recompute});
      if (sub_batches > 1 && recompute != Recompute::none) ways.push_back({sub_batches, true, recompute});
    }
  }
  return ways;
}

Plan gone(Plan plan, const Way& way) {
  plan.schedule.sub_batches = way.sub_batches;
  plan.schedule.cross_pass = way.cross_pass;
  plan.recompute = way.recompute;
  return plan;
}

class SubBatches : public LaidOut {
 protected:
  std::vector<OperatorRule> rules_of(const TensorRanks& ranks, std::string_view model) const {
    return strata::rules_of(AtomicAxes(mesh()), ranks, model);
  }
  Training training_of(const char* name, bool is_tied, std::int64_t batch) const {
    RealModel model = transformer(name);
    model.options.tied_head = is_tied;
    Training training = real(model, batch);
    training.vocabulary = 120;
    training.steps = 2;
    return training;
  }
  /// Ranks beyond the cores take long, and so do sanitizers: they go through few of all cases.
  bool is_few() const { return !is_deep() && (size() > 4 || is_sanitized()); }
  /// Of few cases every fourth.
  bool is_due() { return !is_few() || ++turn_ % 4 == 0; }
  int half() const { return size() % 2 == 0 ? size() / 2 : 1; }
  /// All ranks, halves of them as often as that can be, or one: of any two the smaller divides the larger. On all ranks
  /// the same.
  int any() {
    std::vector<int> all = {1, size()};
    while (all.back() % 2 == 0 && all.back() > 2) all.push_back(all.back() / 2);
    return all[generator_() % all.size()];
  }
  void expect_equal_bits(const Trained& ours, const Trained& reference, const std::string& what) const {
    for (const auto& [parameter, values] : reference.parameters) {
      EXPECT_EQ(ours.parameters.at(parameter), values) << parameter << ", " << what;
    }
  }

 private:
  int turn_ = 0;
  std::mt19937 generator_{1};
};

/// Sums of binary fractions have no rounding. Of four samples three sub-batches have two, one and one.
TEST_F(SubBatches, AreExactOnExactInputs) {
  if (size() % 3 == 0) GTEST_SKIP() << "sizes that " << size() << " ranks divide leave nothing exact";
  const std::vector<Layout> layouts = all_layouts(grid());
  Training training = exact_for_layouts(1);
  training.plan.global_batch = 4 * size();
  const Trained reference = alone(training);
  std::size_t turn = 0;
  for (const Way& way : all_ways()) {
    for (const PartialSums sum : {PartialSums::scatter, PartialSums::all_reduce}) {
      for (std::size_t i = 0; i < layouts.size(); ++i) {
        if (++turn % (is_few() ? 29 : is_deep() || size() < 4 ? 1 : 7) != 0) continue;
        const Layout &first = layouts[i], &second = layouts[(2 * i + 1) % layouts.size()];
        const std::vector<OperatorRule> rules = {{.match = "*", .layout = first, .sum = sum},
                                                 {.match = "block[1].linear", .layout = second}};
        const Trained ours = train_plan(training, gone(laid_out(training, rules), way), world, engine);
        expect_equal_bits(ours, reference,
                          fmt::format("{}, sum = {}, ({}), ({})", to_string(way), to_string(sum), to_string(first),
                                      to_string(second)));
        if (HasFailure()) return;
      }
    }
  }
}

/// Attention, dropout, a tied head; every way in turn, with whole and scattered sums and degrees that rise, fall and go
/// to and fro. Batches of which sub-batches, and ranks, have unequal parts too.
TEST_F(SubBatches, OfTransformers) {
  const int p = size();
  std::size_t turn = 0;
  for (const char* name : {"gpt", "llama"}) {
    for (const std::int64_t batch : {std::int64_t{6} * p, std::int64_t{5} * p, std::int64_t{3} * p + 1}) {
      const Training training = training_of(name, turn % 2 == 0, batch);
      const Trained reference = alone(training);
      for (const Way& way : all_ways()) {
        const std::vector<TensorRanks> degrees = {{p, p, p, p, p},           {half(), half(), half(), half(), half()},
                                                  {1, 1, half(), half(), p}, {p, p, half(), half(), 1},
                                                  {half(), p, 1, half(), p}, {any(), any(), any(), any(), any()}};
        ++turn;
        if (!is_deep() && turn % (is_few() ? 7 : 2) != 0) continue;
        const TensorRanks& ranks = degrees[turn % degrees.size()];
        const PartialSums sum = turn % 3 == 0 ? PartialSums::scatter : PartialSums::all_reduce;
        const Plan plan = gone(laid_out(training, with_sums(rules_of(ranks, name), sum)), way);
        expect_same(train_plan(training, plan, world, engine), reference,
                    fmt::format("{}, batch {}, {}, sum = {}, by {}, {}, {}", name, batch, to_string(way),
                                to_string(sum), ranks.embedding, ranks.attention, ranks.mlp_of_last));
        if (HasFailure()) return;
      }
    }
  }
}

/// Equal sub-batches add up their gradients as micro-batches do. Where a table is tied its two gradients meet in
/// another order.
TEST_F(SubBatches, AreBitForBitAsManyMicroBatches) {
  const int t = half();
  for (const bool is_zero1 : {false, true}) {
    Training training = training_of("gpt", false, 6 * size());
    std::vector<OperatorRule> rules = with_sums(rules_of({t, t, t, t, t}, "gpt"), PartialSums::all_reduce);
    if (is_zero1) {
      for (OperatorRule& rule : rules) rule.state = StateFactors{.p = {}, .g = {}, .os = rule.layout->p0};
      training.plan.optimizer.spread = "all_gather";
    }
    for (const int sub_batches : {2, 3}) {
      Plan micro_batches = laid_out(training, rules);
      micro_batches.schedule.micro_batches = sub_batches;
      const Trained reference = train_plan(training, micro_batches, world, engine);
      for (const Way& way : all_ways()) {
        if (way.sub_batches != sub_batches || !is_due()) continue;
        const Trained ours = train_plan(training, gone(laid_out(training, rules), way), world, engine);
        expect_equal_bits(ours, reference, fmt::format("{}{}", to_string(way), is_zero1 ? ", zero1" : ""));
        EXPECT_EQ(ours.losses, reference.losses) << to_string(way);
      }
    }
  }
}

TEST_F(SubBatches, RecomputationChangesNoBit) {
  const int t = half();
  for (const PartialSums sum : {PartialSums::scatter, PartialSums::all_reduce}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Training training = training_of("gpt", sum == PartialSums::all_reduce, 5 * size());
      training.plan.dtypes = {dtype, dtype};
      training.plan.optimizer.clip_norm = 0.5;
      const std::vector<OperatorRule> rules = with_sums(rules_of({t, t, t, size(), t}, "gpt"), sum);
      std::map<int, Trained> without;  // by sub-batches
      for (const Way& way : all_ways()) {
        if (way.recompute != Recompute::none && !is_due()) continue;
        const Trained ours = train_plan(training, gone(laid_out(training, rules), way), world, engine);
        if (way.recompute == Recompute::none) {
          without.emplace(way.sub_batches, ours);
          continue;
        }
        expect_equal_bits(ours, without.at(way.sub_batches), to_string(way) + ", " + std::string(to_string(dtype)));
        if (HasFailure()) return;
        if (way.recompute != Recompute::after_communication) continue;
        std::vector<OperatorRule> parts = rules;
        for (const char* kept : {"block[0].attn.*", "block[1].mlp.*"}) {
          parts.push_back({.match = kept, .recompute = Recompute::none});
        }
        expect_equal_bits(train_plan(training, gone(laid_out(training, parts), way), world, engine),
                          without.at(way.sub_batches), to_string(way) + ", of an MLP and the other's attention");
      }
    }
  }
}

/// Gradients are summed over sub-batches before they are scattered, and a parameter that is gathered serves them all.
TEST_F(SubBatches, ShareGatheredParametersAndMicroBatches) {
  const int t = size() % 4 == 0 ? size() / 4 : 1;
  Training training = training_of("gpt", true, 12 * size());
  training.plan.schedule.micro_batches = 2;
  const Trained reference = alone(training);
  for (const char* regather : {"keep", "regather"}) {
    for (const Way& way : all_ways()) {
      if (!is_due()) continue;
      std::vector<OperatorRule> rules = with_sums(rules_of({t, t, t, t, t}, "gpt"), PartialSums::all_reduce);
      rules.insert(rules.begin(), {.match = "*", .layout = rules.front().layout});
      for (OperatorRule& rule : rules) {
        rule.state = StateFactors{.p = rule.layout->p0, .g = rule.layout->p0, .os = rule.layout->p0};
      }
      Plan plan = gone(laid_out(training, rules), way);
      plan.optimizer.spread = "all_gather";
      plan.gathered_after_recompute = regather;
      plan.overlap.gather = "next_layer";
      plan.overlap.gather_backward = "next_module";
      plan.overlap.reduce_scatter = "grad_input";
      expect_same(train_plan(training, plan, world, engine), reference,
                  fmt::format("{}, zero3, {}", to_string(way), regather));
      if (HasFailure()) return;
    }
  }
}

/// The same sums, made earlier.
TEST_F(SubBatches, WeightGradientsUnderTheSumOfInputGradientsChangeNoBit) {
  const Training training = training_of("gpt", true, 6 * size());
  const std::vector<OperatorRule> rules =
      with_sums(rules_of({size(), size(), size(), half(), half()}, "gpt"), PartialSums::all_reduce);
  for (const Way& way : all_ways()) {
    if (!is_due()) continue;
    Plan plan = gone(laid_out(training, rules), way);
    const Trained reference = train_plan(training, plan, world, engine);
    plan.overlap.layout = "weight_gradient";
    expect_equal_bits(train_plan(training, plan, world, engine), reference, to_string(way));
  }
}

}  // namespace
}  // namespace strata::test_sub_batches
