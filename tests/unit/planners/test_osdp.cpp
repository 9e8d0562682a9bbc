/// @file
/// OSDP's modes: the operators of table 1, seconds and bytes against the Program that is lowered, what must hold of any
/// plan at any capacity, and refusals.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "base/error.hpp"
#include "lower/lower.hpp"
#include "planners/operators/choices.hpp"
#include "planners/search/exact_choices.hpp"
#include "sharded.hpp"
#include "support/refusal.hpp"
#include "support/source_dir.hpp"

namespace strata::test_osdp {
namespace {

using testing::HasSubstr;

constexpr std::int64_t gib = std::int64_t{1} << 30;

const Cluster& titans() {
  static const Cluster cluster = [] {
    const std::string path = test::source_dir() + "/experiments/clusters/titan-pcie.toml";
    std::ifstream stream(path);
    return parse_cluster({std::istreambuf_iterator<char>(stream), {}}, path);
  }();
  return cluster;
}

/// fp32 on OSDP's server. @param samples of a rank; 0: the planner chooses.
Plan asked(std::int64_t capacity_bytes, std::int64_t samples = 0, Recompute recompute = Recompute::none) {
  Plan plan = asked_on({8, 1}, 1);
  plan.dtypes = {DType::f32, DType::f32};
  plan.global_batch = 8 * samples;
  plan.device_capacity_bytes = capacity_bytes;
  plan.recompute = recompute;
  return plan;
}

Plan osdp(const ModelGraph& graph, const Plan& base, std::map<std::string, OptionValue> options = {},
          const char* mode = "osdp") {
  return planned(mode, graph, base, std::move(options), titans());
}

double samples_per_second(const Plan& plan) {
  return static_cast<double>(plan.global_batch) / plan.why.predicted_seconds;
}

/// A model of table 1's shape that lowers in milliseconds.
ModelGraph small(int layers, bool tied = false) { return small_gpt(layers, 256, tied); }

TEST(OsdpUnits, EveryModelOfTableOneHasTwoOperatorsALayerAndTwo) {
  int models = 0;
  for (const Preset& preset : presets()) {
    if (!preset.name.starts_with("mingpt-")) continue;
    const ModelGraph graph = build_model({.name = preset.name});
    const std::vector<OperatorUnit> units = operator_units(graph, Granularity::block);
    EXPECT_EQ(units.size(), 2 * graph.blocks.size() + 2) << preset.name;
    std::set<int> operators, parameters;
    for (const OperatorUnit& unit : units) {
      operators.insert(unit.operators.begin(), unit.operators.end());
      for (const int p : unit.parameters) EXPECT_TRUE(parameters.insert(p).second);
    }
    EXPECT_EQ(operators.size(), graph.operators.size());
    EXPECT_EQ(parameters.size(), graph.parameters.size());
    ++models;
  }
  EXPECT_EQ(models, 10);
}

TEST(OsdpUnits, EachLinearWhereAskedAndATiedHeadIsTheEmbedding) {
  EXPECT_EQ(operator_units(small(3), Granularity::linear).size(), 4U * 3 + 2);
  EXPECT_EQ(operator_units(small(3, true), Granularity::block).size(), 2U * 3 + 1);
  EXPECT_EQ(operator_units(build_model({.name = "mlp-tiny"}), Granularity::block).size(), 3U);
  EXPECT_EQ(operator_units(build_model({.name = "vgg-nano"}), Granularity::block).size(), 11U);
  // Patches, class token and positions with the attention behind them, as GPT's embedding; two a block; the head.
  EXPECT_EQ(operator_units(build_model({.name = "vit-nano"}), Granularity::block).size(), 6U);
  EXPECT_THROW(parse_granularity("layer"), UserError);
  // A projection between widths goes with the attention behind it.
  const ModelGraph uneven = build_model({.name = "mingpt-ic-24"});
  const std::vector<OperatorUnit> units = operator_units(uneven, Granularity::block);
  EXPECT_EQ(units[1 + 2 * 12].patterns, (std::vector<std::string>{"resize", "attn.*"}));
}

/// ZeRO-3 as the modes make it.
Plan all_sharded(Plan plan, const char* overlap) {
  plan = planned("zero3", small(2), std::move(plan), {{"overlap", std::string(overlap)}}, titans());
  return plan;
}

TEST(OsdpCosts, GathersAreTheProgramsGathers) {
  for (const Recompute recompute : {Recompute::none, Recompute::block}) {
    for (const char* keep : {"regather", "keep"}) {
      const ModelGraph graph = small(2);
      Plan plan = all_sharded(asked(0, 1, recompute), "none");
      plan.gathered_after_recompute = keep;
      const Program program = lower(plan, graph, 0, [](const Program&, const Instruction&) { return 0; });
      std::map<std::string, int> gathered, expected;
      for (const Instruction& in : program.body) {
        const bool is_gather = in.is_collective() && in.collective == Collective::all_gather;
        if (is_gather && in.phase != Phase::update) ++gathered[in.name];
      }
      const std::vector<Gathers> gathers = gathers_of(graph, plan);
      for (std::size_t o = 0; o < graph.operators.size(); ++o) {
        for (std::size_t i = 0; i < graph.operators[o].parameters.size(); ++i) {
          const int p = graph.operators[o].parameters[i];
          expected[graph.parameters[static_cast<std::size_t>(p)].name] +=
              i == 0 ? gathers[o].of_weight : gathers[o].of_others;
        }
      }
      EXPECT_EQ(gathered, expected) << to_string(recompute) << " " << keep;
    }
  }
}

TEST(OsdpCosts, ComputeIsTheSumOfTheProgramsKernels) {
  for (const Recompute recompute : {Recompute::none, Recompute::block}) {
    for (const char* model : {"gpt-nano", "llama-nano", "vgg-nano", "vit-nano", "mlp-tiny"}) {
      const ModelGraph graph = build_model({.name = model});
      Plan plan = asked_on({1, 1}, 1);
      plan.dtypes = {DType::f32, DType::f32};
      plan.global_batch = 3;
      plan.recompute = recompute;
      plan.mesh.axes = {{"data", 1}};
      const Program program = lower(plan, graph, 0, [](const Program&, const Instruction&) { return 0; });
      for (const auto& costs : {paper_costs(titans()), analytic_costs(titans())}) {
        double kernels = 0.0;
        for (const Instruction& in : program.body) {
          const bool of_an_operator =
              in.phase == Phase::forward || in.phase == Phase::recompute ||
              (in.phase == Phase::backward && in.kernel != Kernel::accumulate && in.kernel != Kernel::copy);
          const bool loads =
              in.kernel == Kernel::load_tokens || in.kernel == Kernel::load_images || in.kernel == Kernel::load_targets;
          if (of_an_operator && !loads && !in.is_collective()) kernels += costs->kernel(program, in).seconds;
        }
        const ComputeSeconds compute(graph, plan, gathers_of(graph, plan), *costs);
        EXPECT_NEAR(compute.of_micro_batch(3), kernels, 0.03 * kernels) << model << " " << to_string(recompute);
      }
    }
  }
}

TEST(OsdpCosts, ThePapersRatiosOfZdpToDp) {
  const ModelGraph graph = small(2);
  for (const auto& [recompute, ratio] : {std::pair{Recompute::none, 1.5}, {Recompute::block, 2.0}}) {
    const Plan plan = asked(gib, 1, recompute);
    const auto costs = paper_costs(titans());
    const OperatorChoices choices(graph, plan, *costs, {.slices = 0, .paper = true});
    for (const OperatorClass& c : choices.problem().classes) {
      ASSERT_EQ(c.choices.size(), 2U);
      EXPECT_DOUBLE_EQ(c.choices[1].seconds / c.choices[0].seconds, ratio);
    }
  }
}

/// Above it by what the largest workspace, the head's in a model as small as this, adds to a moment that is not its
/// own.
TEST(OsdpMemory, IsTheProgramsOrALittleMore) {
  const ModelGraph graph = small_gpt(6, 512);
  const auto costs = analytic_costs(titans());
  for (const Recompute recompute : {Recompute::none, Recompute::block}) {
    for (const char* overlap : {"none", "full"}) {
      for (const double share : {0.0, 0.3, 0.7, 1.0}) {
        const std::int64_t samples = 2;
        Plan base = asked(0, samples, recompute);
        base.overlap.bucket_bytes = 1 << 20;
        Plan plan = planned("osdp-base", graph, base, {{"overlap", std::string(overlap)}}, titans());
        const OperatorChoices choices(graph, plan, *costs, {.slices = 0});
        const ChoiceProblem& problem = choices.problem();
        const std::int64_t least = least_peak_bytes(problem, samples);
        const std::int64_t most = evaluated(problem, fastest(problem), samples).peak_bytes;
        base.device_capacity_bytes = least + std::llround(share * static_cast<double>(most - least)) + most / 50;
        plan = planned("osdp-base", graph, base, {{"overlap", std::string(overlap)}}, titans());
        const Program program = lower(plan, graph, 0, [](const Program&, const Instruction&) { return 0; });
        const auto peak = static_cast<double>(memory_peak(program).total_bytes);
        const auto predicted = static_cast<double>(plan.why.predicted_peak_bytes);
        EXPECT_LE(predicted, static_cast<double>(base.device_capacity_bytes));
        EXPECT_GE(predicted, 0.97 * peak) << to_string(recompute) << " " << overlap << " " << share;
        EXPECT_LE(predicted, 1.25 * peak) << to_string(recompute) << " " << overlap << " " << share;
      }
    }
  }
}

TEST(OsdpPlans, WithoutALimitThePlanIsDdps) {
  const ModelGraph graph = build_model({.name = "mingpt-nd-48x1024"});
  for (const std::int64_t capacity : {std::int64_t{0}, 1000 * gib}) {
    const Plan plan = osdp(graph, asked(capacity, 2));
    const Plan ddp = planned("ddp", graph, asked(capacity, 2), {}, titans());
    const auto ours = resolve(plan, graph), theirs = resolve(ddp, graph);
    for (std::size_t o = 0; o < ours.size(); ++o) {
      EXPECT_EQ(ours[o].state, theirs[o].state);
      EXPECT_LE(ours[o].slices, 1);
    }
    EXPECT_EQ(plan.global_batch, 16);
  }
}

TEST(OsdpPlans, TheLeastCapacityShardsEverything) {
  const ModelGraph graph = build_model({.name = "mingpt-ic-24"});
  Plan base = asked(1, 1, Recompute::block);
  const Factor all{8, 1};
  const auto least_of = [&](const char* mode, int slices) {
    const Plan shape = planned(mode, graph, asked(0, 1, Recompute::block), {}, titans());
    const auto costs = analytic_costs(titans());
    const OperatorChoices choices(graph, shape, *costs, {.slices = slices});
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (const std::int64_t only : {0, 1}) {  // whole, or in slices
      std::vector<int> sharded;
      for (std::size_t u = 0; u < choices.units().size(); ++u) {
        const auto& all_choices = choices.problem().classes[static_cast<std::size_t>(choices.classes()[u])].choices;
        sharded.push_back(only == 0 ? 1 : static_cast<int>(all_choices.size()) - 1);
      }
      least = std::min(least, choices.peak_bytes(sharded, 1));
    }
    return least;
  };
  base.device_capacity_bytes = least_of("osdp-base", 0);
  const auto expect_all_sharded = [&](const Plan& plan) {
    const std::vector<OperatorDecision> decisions = resolve(plan, graph);
    for (std::size_t o = 0; o < decisions.size(); ++o) {
      if (graph.operators[o].parameters.empty()) continue;
      EXPECT_EQ(decisions[o].state, (StateFactors{.p = all, .g = all, .os = all})) << graph.operators[o].name;
      for (const std::string& slice : decisions[o].slice_state) EXPECT_EQ(slice, "zdp");
    }
  };
  expect_all_sharded(osdp(graph, base, {}, "osdp-base"));
  --base.device_capacity_bytes;
  EXPECT_THAT(out_of_memory([&] { osdp(graph, base, {}, "osdp-base"); }), HasSubstr("1 bytes too much"));
  // Slices need less: the same capacity fits them, and theirs shards every slice.
  EXPECT_NO_THROW(osdp(graph, base));
  base.device_capacity_bytes = least_of("osdp", 4);
  expect_all_sharded(osdp(graph, base));
}

TEST(OsdpPlans, MoreChoicesAndMoreMemoryAreNeverSlower) {
  for (const char* model : {"mingpt-nd-48x1024", "mingpt-ws-2x6144", "mingpt-ic-24"}) {
    const ModelGraph graph = build_model({.name = model});
    for (const Recompute recompute : {Recompute::none, Recompute::block}) {
      double last = 0.0;
      int plans = 0;
      for (const std::int64_t capacity : {6, 8, 16, 40}) {
        const Plan base = asked(capacity * gib, 0, recompute);
        double ours = 0.0;
        try {
          const Plan plan = osdp(graph, base);
          EXPECT_NO_THROW(verify(plan, graph));
          EXPECT_EQ(parse_plan(to_text(plan), "plan.toml"), plan);
          EXPECT_LE(plan.why.predicted_peak_bytes, base.device_capacity_bytes);
          ours = samples_per_second(plan);
          ++plans;
        } catch (const OutOfMemory&) {
        }
        double whole = 0.0;
        try {
          whole = samples_per_second(osdp(graph, base, {}, "osdp-base"));
        } catch (const OutOfMemory&) {
        }
        // All replicated and all sharded, each with its own best batch.
        double pure = 0.0;
        const Plan shape = osdp(graph, asked(0, 1, recompute), {}, "osdp-base");
        const auto costs = analytic_costs(titans());
        const OperatorChoices choices(graph, shape, *costs, {.slices = 0});
        for (const int choice : {0, 1}) {
          const std::vector<int> same(choices.units().size(), choice);
          Counts counts;
          for (const OperatorClass& c : choices.problem().classes) {
            counts.emplace_back(c.choices.size(), 0)[static_cast<std::size_t>(choice)] = c.count;
          }
          for (std::int64_t b = 1; choices.peak_bytes(same, b) <= base.device_capacity_bytes; ++b) {
            pure = std::max(pure, 8.0 / evaluated(choices.problem(), counts, b).seconds_per_sample());
          }
        }
        EXPECT_GE(ours, whole * (1.0 - 1e-9)) << model << " " << capacity;
        EXPECT_GE(whole, pure * (1.0 - 1e-9)) << model << " " << capacity;
        EXPECT_GE(ours, last * (1.0 - 1e-9)) << model << " " << capacity;
        last = ours;
      }
      EXPECT_GT(plans, 0) << model;
    }
  }
}

TEST(OsdpPlans, RulesSayWhatWasChosen) {
  const ModelGraph graph = build_model({.name = "mingpt-nd-48x1024"});
  const Plan plan = osdp(graph, asked(8 * gib, 1));
  const Factor all{8, 1};
  int sharded = 0, sliced = 0;
  const std::vector<OperatorDecision> decisions = resolve(plan, graph);
  for (std::size_t o = 0; o < decisions.size(); ++o) {
    const OperatorDecision& d = decisions[o];
    sharded += d.state.p == all ? 1 : 0;
    if (d.slices == 0) continue;
    EXPECT_EQ(graph.operators[o].kind, OperatorKind::linear);
    EXPECT_EQ(d.slices, 4);
    ASSERT_EQ(d.slice_state.size(), 4U);
    EXPECT_EQ(d.slice_state.front(), "zdp");
    ++sliced;
  }
  EXPECT_GT(sharded + sliced, 0);
  EXPECT_LT(sharded, static_cast<int>(decisions.size()));
  EXPECT_EQ(plan.gathered_after_recompute, "regather");
  EXPECT_LT(plan.operators.size(), 20U);  // ranges of blocks, not a row an operator
  EXPECT_THAT(plan.why.binding, HasSubstr("memory: 8.00 GiB"));
}

TEST(OsdpPlans, ThePapersSearchFindsTheSame) {
  const ModelGraph graph = small(2);
  const auto costs = paper_costs(titans());
  for (const char* cost : {"paper", "analytic"}) {
    for (const std::int64_t mib : {12, 16, 20, 24, 32}) {
      Plan base = asked(mib << 20, 1);
      base.overlap.bucket_bytes = 1 << 20;
      const auto plan = [&](const char* search) {
        return osdp(graph, base, {{"search", std::string(search)}, {"cost", std::string(cost)}});
      };
      const std::string refused = out_of_memory([&] { plan("exact"); });
      EXPECT_EQ(out_of_memory([&] { plan("dfs"); }), refused);
      if (!refused.empty()) continue;
      EXPECT_NEAR(plan("dfs").why.predicted_seconds, plan("exact").why.predicted_seconds,
                  1e-9 * plan("exact").why.predicted_seconds);
    }
  }
}

struct MadeUp {
  std::int64_t bytes = 0;             ///< of one sample a rank
  std::int64_t bytes_per_sample = 0;  ///< of each after it
  std::int64_t bytes_of_slices = 0;   ///< where anything is cut
  double seconds_of_slices = 0.0;  ///< of a step where anything is cut; others take a second. 0: seconds are not known
};

/// And 10 MiB for every replicated operator.
class MadeUpAccount final : public Evaluate {
 public:
  MadeUpAccount(const ModelGraph& graph, const MadeUp& numbers) : graph_(graph), numbers_(numbers) {}
  Evaluation operator()(const Plan& plan) const override {
    Evaluation evaluation = memory(plan);
    evaluation.step_seconds = has_slices(plan) ? numbers_.seconds_of_slices : 1.0;
    evaluation.source = "a guess";
    return evaluation;
  }
  bool knows_seconds() const override { return numbers_.seconds_of_slices > 0.0; }
  Evaluation account(const Plan& plan) const override { return memory(plan); }
  Evaluation memory(const Plan& plan) const override {
    const std::vector<OperatorDecision> decisions = resolve(plan, graph_);
    std::int64_t bytes = numbers_.bytes + (plan.global_batch / 8 - 1) * numbers_.bytes_per_sample;
    for (std::size_t o = 0; o < decisions.size(); ++o) {
      const bool replicated = !graph_.operators[o].parameters.empty() && decisions[o].state.p.total() == 1;
      bytes += replicated && decisions[o].slices <= 1 ? 10 << 20 : 0;
    }
    return {.peak_bytes = bytes + (has_slices(plan) ? numbers_.bytes_of_slices : 0)};
  }
  Evaluation least_memory(const Plan& plan) const override { return memory(plan); }
  PricedStep price(const Plan&, const ModelGraph&) const override { return {.missing = "nothing is priced here"}; }
  double collective_seconds(Collective, const Mesh&, std::span<const int>, std::int64_t) const override { return 0.0; }
  bool has_slices(const Plan& plan) const {
    return std::ranges::any_of(resolve(plan, graph_), [](const OperatorDecision& d) { return d.slices > 1; });
  }

 private:
  const ModelGraph& graph_;
  MadeUp numbers_;
};

Plan planned_with(const MadeUpAccount& account, const char* mode, const ModelGraph& graph, Plan base,
                  std::map<std::string, OptionValue> options = {}) {
  const Planner& planner = find_planner(mode);
  for (const OptionRow& row : planner.options()) options.emplace(row.name, row.default_value);
  base.strategy = mode;
  Plan plan =
      planner.plan({.graph = graph, .cluster = titans(), .base = base, .options = options, .evaluate = &account});
  EXPECT_EQ(plan.why.predicted_peak_bytes, account.memory(plan).peak_bytes);
  EXPECT_LE(plan.why.predicted_peak_bytes, base.device_capacity_bytes);
  EXPECT_THAT(plan.why.binding, HasSubstr("bytes by the Program"));
  return plan;
}

TEST(OsdpPlans, TheProgramsAccountHasTheLastWord) {
  const ModelGraph graph = build_model({.name = "mingpt-nd-48x1024"});
  const auto plan_with = [&](std::int64_t bytes) {
    return planned_with({graph, {.bytes = bytes, .bytes_per_sample = gib}}, "osdp-base", graph, asked(8 * gib, 1));
  };
  // The less room the Program leaves, the slower.
  const Plan roomy = plan_with(2 * gib), tight = plan_with(7 * gib);
  const Plan by_closed_form = osdp(graph, asked(8 * gib, 1), {}, "osdp-base");
  EXPECT_LT(roomy.why.predicted_seconds, by_closed_form.why.predicted_seconds);
  EXPECT_GT(tight.why.predicted_seconds, roomy.why.predicted_seconds);
  // What a refusal names is the Program of the plan that needs least: none of its operators is replicated.
  EXPECT_THAT(out_of_memory([&] { plan_with(9 * gib); }), HasSubstr("need 9.00 GiB, 1073741824 bytes too much"));
}

/// The closed form is an estimate on both sides.
TEST(OsdpPlans, ABatchThatOnlyTheProgramHasRoomForIsTaken) {
  const ModelGraph graph = build_model({.name = "mingpt-nd-48x1024"});
  for (const char* mode : {"osdp-base", "osdp"}) {
    const auto most = static_cast<std::int64_t>(osdp(graph, asked(8 * gib), {}, mode).why.frontier.size());
    ASSERT_GE(most, 1);
    const Plan too_large = asked(8 * gib, most + 1);
    EXPECT_THAT(out_of_memory([&] { osdp(graph, too_large, {}, mode); }), HasSubstr("samples would fit"));
    for (const std::int64_t more : {1, 5}) {
      // The last one fits to the byte.
      const std::int64_t of_a_sample = gib / 16;
      const MadeUpAccount account(
          graph, {.bytes = 8 * gib - (most + more - 1) * of_a_sample, .bytes_per_sample = of_a_sample});
      const Plan plan = planned_with(account, mode, graph, asked(8 * gib));
      EXPECT_EQ(plan.global_batch, 8 * (most + more)) << mode;
      EXPECT_THAT(plan.why.frontier.back(), testing::StartsWith(fmt::format("b = {}: ", most + more)));
      EXPECT_EQ(planned_with(account, mode, graph, too_large).global_batch, too_large.global_batch);
      EXPECT_THAT(out_of_memory([&] { planned_with(account, mode, graph, asked(8 * gib, most + more + 1)); }),
                  HasSubstr(fmt::format("{} samples would fit", 8 * (most + more))));
    }
  }
}

/// Slices hide less than whole operators, and may keep two of themselves where those keep one: what zero3 has room for
/// is not refused.
TEST(OsdpPlans, TheLeastPlanIsTheLeastByTheProgram) {
  const ModelGraph graph = build_model({.name = "mingpt-ws-4x6144"});
  const std::int64_t capacity = 8 * gib;
  const Plan base = asked(capacity, 1, Recompute::block);
  const MadeUpAccount fits(graph, {.bytes = capacity, .bytes_per_sample = gib, .bytes_of_slices = 1});
  const Plan plan = planned_with(fits, "osdp", graph, base);
  EXPECT_FALSE(fits.has_slices(plan));
  EXPECT_EQ(plan.why.predicted_peak_bytes, capacity);
  const MadeUpAccount exceeds(graph, {.bytes = capacity + 1, .bytes_per_sample = gib, .bytes_of_slices = gib});
  EXPECT_THAT(out_of_memory([&] { planned_with(exceeds, "osdp", graph, base); }), HasSubstr(", 1 bytes too much"));
}

/// Adding times up, a cut is free; with overlap it may not be.
TEST(OsdpPlans, TheFastestIsTheFastestByEvaluation) {
  const ModelGraph graph = build_model({.name = "mingpt-ws-2x6144"});
  const Plan base = asked(8 * gib, 1);
  ASSERT_TRUE(MadeUpAccount(graph, {}).has_slices(osdp(graph, base))) << "nothing to decide";
  for (const double seconds_of_slices : {0.9, 1.1}) {
    const MadeUpAccount account(
        graph, {.bytes = 8 * gib - (100 << 20), .bytes_per_sample = gib, .seconds_of_slices = seconds_of_slices});
    const Plan plan = planned_with(account, "osdp", graph, base);
    EXPECT_EQ(account.has_slices(plan), seconds_of_slices < 1.0);
    EXPECT_EQ(plan.why.predicted_seconds, std::min(1.0, seconds_of_slices));
    EXPECT_THAT(plan.why.binding,
                testing::AllOf(HasSubstr("; fastest of "), HasSubstr(" by a guess: slices allowed, b = 1"),
                               HasSubstr(", whole operators, b = 1: 1 s a sample")));
  }
}

/// The paper's own search has no simulation to ask, but the Program's memory limits its plan too.
TEST(OsdpPlans, WhatTheSearchFindsIsTakenAsItIs) {
  const ModelGraph graph = build_model({.name = "mingpt-ws-2x6144"});
  const MadeUpAccount slow_slices(graph,
                                  {.bytes = 8 * gib - (100 << 20), .bytes_per_sample = gib, .seconds_of_slices = 1.1});
  const Plan base = asked(8 * gib, 1);
  const Plan plan = planned_with(slow_slices, "osdp", graph, base, {{"choice", std::string("search")}});
  EXPECT_TRUE(slow_slices.has_slices(plan));
  EXPECT_NE(plan.why.predicted_seconds, 1.1) << "by closed form";
  EXPECT_THAT(plan.why.binding, testing::Not(HasSubstr("fastest of")));
  EXPECT_FALSE(slow_slices.has_slices(planned_with(slow_slices, "osdp", graph, base)));
}

TEST(OsdpPlans, TheFrontierHasEveryBatch) {
  const ModelGraph graph = build_model({.name = "mingpt-nd-48x1024"});
  const Plan plan = osdp(graph, asked(16 * gib, 0, Recompute::block));
  ASSERT_FALSE(plan.why.frontier.empty());
  for (std::size_t i = 0; i < plan.why.frontier.size(); ++i) {
    EXPECT_THAT(plan.why.frontier[i], testing::StartsWith(fmt::format("b = {}: ", i + 1)));
    EXPECT_THAT(plan.why.frontier[i], HasSubstr(" GiB by closed form, "));
  }
  EXPECT_EQ(plan.global_batch % 8, 0);
  EXPECT_FALSE(plan.why.runner_up.empty());
  EXPECT_TRUE(osdp(graph, asked(16 * gib, 1, Recompute::block)).why.frontier.empty());
}

TEST(OsdpPlans, EveryLineOfTheFrontierSaysWhoseBytesItHas) {
  const ModelGraph graph = build_model({.name = "mingpt-nd-48x1024"});
  const MadeUpAccount account(graph, {.bytes = 6 * gib, .bytes_per_sample = gib});
  const Plan plan = planned_with(account, "osdp-base", graph, asked(16 * gib, 0, Recompute::block));
  ASSERT_GT(plan.why.frontier.size(), 1U);
  const std::string chosen = fmt::format("b = {}: ", plan.global_batch / 8);
  int by_program = 0;
  for (const std::string& line : plan.why.frontier) {
    by_program += line.starts_with(chosen) ? 1 : 0;
    const bool is_programs = line.find(" GiB by the Program, ") != std::string::npos;
    EXPECT_TRUE(is_programs || !line.starts_with(chosen)) << line;
    EXPECT_TRUE(is_programs || line.find(" GiB by corrected closed form, ") != std::string::npos) << line;
  }
  EXPECT_EQ(by_program, 1);
}

TEST(OsdpRefuses, SaysWhichLimitWhatIsMissingAndWhatWouldFit) {
  const ModelGraph graph = build_model({.name = "mingpt-nd-96x1536"});
  const std::string text = out_of_memory([&] { osdp(graph, asked(2 * gib)); });
  EXPECT_THAT(text, HasSubstr("osdp on 8 ranks: nothing fits into a device memory of 2.00 GiB (2147483648 bytes)"));
  EXPECT_THAT(text, HasSubstr("with 1 samples a rank"));
  EXPECT_THAT(text, HasSubstr("bytes too much; of it states "));
  EXPECT_THAT(text, HasSubstr("would fit"));
  EXPECT_THAT(out_of_memory([&] { osdp(graph, asked(24 * gib, 64, Recompute::block)); }),
              HasSubstr(" samples would fit, or "));
  EXPECT_THAT(refusal([&] { osdp(graph, asked(0)); }), HasSubstr("nothing limits it: set resources.memory_gib"));
  Plan odd = asked(24 * gib, 1);
  odd.global_batch = 9;
  EXPECT_EQ(osdp(graph, odd).global_batch, 9) << "the first rank has two of them";
  odd.schedule.micro_batches = 2;
  EXPECT_THAT(refusal([&] { osdp(graph, odd); }), HasSubstr("9 samples are not divisible by 2 micro-batches"));
  EXPECT_THAT(refusal([&] { planned("osdp", graph, asked(24 * gib, 1), {}, Cluster{}); }),
              HasSubstr("needs memory_bandwidth_bytes_per_second"));
}

TEST(OsdpPlans, SdpIsOfferedWhereAsked) {
  const ModelGraph graph = build_model({.name = "mingpt-nd-48x1024"});
  const Plan base = asked(14 * gib, 1);
  const Plan with = osdp(graph, base, {{"sdp", true}}), without = osdp(graph, base);
  EXPECT_LE(with.why.predicted_seconds, without.why.predicted_seconds * (1.0 + 1e-9));
  EXPECT_EQ(with.optimizer.gradients, "reduce_scatter");
  for (const OperatorDecision& d : resolve(without, graph)) EXPECT_EQ(d.state.p, d.state.os);
}

}  // namespace
}  // namespace strata::test_osdp
