/// @file
/// `3d+osdp`: which degrees the search takes, that each stage decides for its own memory, and refusals.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <set>

#include "base/error.hpp"
#include "lower/lower.hpp"
#include "partition/stages.hpp"
#include "sharded.hpp"
#include "support/deep.hpp"
#include "support/refusal.hpp"

namespace strata::test_in_stages {
namespace {

using testing::HasSubstr;
using Options = std::map<std::string, OptionValue>;

constexpr std::int64_t mib = std::int64_t{1} << 20;
constexpr std::int64_t plenty = std::int64_t{1} << 40;

std::vector<Program> programs_of(const Plan& plan, const ModelGraph& graph) {
  std::vector<Program> programs;
  for (int rank = 0; rank < plan.mesh.num_ranks(); ++rank) {
    programs.push_back(lower(plan, graph, rank, [](const Program&, const Instruction&) { return 0; }));
  }
  return programs;
}

/// Every rank lowered.
class Lowered final : public Evaluate {
 public:
  explicit Lowered(const ModelGraph& graph) : graph_(graph) {}
  Evaluation operator()(const Plan&) const override { return {}; }
  bool knows_seconds() const override { return false; }
  Evaluation account(const Plan& plan) const override { return memory(plan); }
  Evaluation memory(const Plan& plan) const override {
    Evaluation evaluation;
    evaluation.stage_peak_bytes.resize(static_cast<std::size_t>(axis_size(plan.mesh, "stage")));
    for (int rank = 0; rank < plan.mesh.num_ranks(); ++rank) {
      std::int64_t& peak = evaluation.stage_peak_bytes[static_cast<std::size_t>(coordinate(plan.mesh, "stage", rank))];
      const Program program = lower(plan, graph_, rank, [](const Program&, const Instruction&) { return 0; });
      peak = std::max(peak, program.arena_bytes);
    }
    evaluation.peak_bytes = *std::ranges::max_element(evaluation.stage_peak_bytes);
    return evaluation;
  }
  Evaluation least_memory(const Plan& plan) const override { return memory(plan); }
  PricedStep price(const Plan&, const ModelGraph&) const override { return {.missing = "nothing is priced here"}; }
  double collective_seconds(Collective, const Mesh&, std::span<const int>, std::int64_t) const override { return 0.0; }

 private:
  const ModelGraph& graph_;
};

ModelGraph model(bool tied = false) { return small_gpt(6, 128, tied); }

/// @param lowers whether the planner may ask for the memory of Programs.
Plan plan_of(const char* mode, const ModelGraph& graph, std::int64_t capacity, Options options = {},
             bool lowers = true) {
  const Planner& planner = find_planner(mode);
  for (const OptionRow& row : planner.options()) options.try_emplace(std::string(row.name), row.default_value);
  Plan base = asked_on({8, 1}, 4);
  base.strategy = mode;
  base.device_capacity_bytes = capacity;
  base.overlap.bucket_bytes = mib / 4;
  const Lowered account(graph);
  return planner.plan({.graph = graph,
                       .cluster = a800_ib(),
                       .base = base,
                       .options = options,
                       .evaluate = lowers ? &account : nullptr});
}

/// Of the operators with parameters, how many are not replicated, whole or in a slice.
int num_sharded(const Plan& plan, const ModelGraph& graph) {
  const std::vector<OperatorDecision> decisions = resolve(plan, graph);
  int sharded = 0;
  for (std::size_t o = 0; o < decisions.size(); ++o) {
    const auto& slices = decisions[o].slice_state;
    const bool in_slices = std::ranges::find(slices, "zdp") != slices.end();
    sharded += !graph.operators[o].parameters.empty() && (decisions[o].state.p.total() > 1 || in_slices) ? 1 : 0;
  }
  return sharded;
}

TEST(InStages, TheSearchTakesTheFastestDegreesThatFit) {
  const ModelGraph graph = model();
  for (const char* mode : {"3d+osdp"}) {
    const Plan best = plan_of(mode, graph, plenty);
    double fastest = std::numeric_limits<double>::infinity();
    for (const std::int64_t stages : {1, 2, 4}) {  // 8 do not fit six blocks
      fastest = std::min(fastest, plan_of(mode, graph, plenty, {{"stages", stages}}).why.predicted_seconds);
    }
    EXPECT_EQ(best.why.predicted_seconds, fastest) << mode;
    EXPECT_THAT(best.why.runner_up, HasSubstr("data ")) << mode;
    EXPECT_THAT(best.why.binding,
                HasSubstr("; of 3 combinations 3 were compared by closed form, of which 0 do not fit"))
        << mode;
    EXPECT_EQ(num_sharded(best, graph), 0) << mode;
  }
}

TEST(InStages, WhereNothingFitsAllDegreesSayWhatTheyNeed) {
  const std::string text = out_of_memory([] { plan_of("3d+osdp", model(), mib); });
  EXPECT_THAT(text, HasSubstr("3d+osdp on 8 ranks: nothing fits into a device memory of 0.0010 GiB (1048576 bytes)"));
  for (const char* degrees : {"data 8 × stage 1", "data 4 × stage 2", "data 2 × stage 4"}) {
    EXPECT_THAT(text, HasSubstr(degrees));
  }
}

TEST(InStages, EveryStageFitsAndLessMemoryShardsMore) {
  for (const bool tied : {false, true}) {
    const ModelGraph graph = model(tied);
    const Lowered account(graph);
    for (const std::int64_t stages : {1, 2, 4}) {
      if (tied && stages != 4 && !is_deep()) continue;
      const Options options = {{"stages", stages}};
      const std::int64_t replicated = plan_of("3d+osdp", graph, plenty, options).why.predicted_peak_bytes;
      double last = 0.0;
      std::set<int> sharded;
      int plans = 0;
      for (const double share : {1.0, 0.9, 0.75, 0.6, 0.45, 0.1}) {
        const auto capacity = static_cast<std::int64_t>(share * static_cast<double>(replicated));
        Plan plan;
        const std::string why = out_of_memory([&] { plan = plan_of("3d+osdp", graph, capacity, options); });
        if (!why.empty()) {
          EXPECT_LT(share, 0.8) << why;
          EXPECT_THAT(why, HasSubstr("nothing fits into a device memory"));
          continue;
        }
        ++plans;
        EXPECT_NO_THROW(verify(plan, graph));
        EXPECT_EQ(parse_plan(to_text(plan), "plan.toml"), plan);
        EXPECT_EQ(plan.why.predicted_peak_bytes, account.memory(plan).peak_bytes);
        EXPECT_LE(plan.why.predicted_peak_bytes, capacity) << stages << " stages, " << share;
        EXPECT_NO_THROW(verify(programs_of(plan, graph))) << stages << " stages, " << share;
        EXPECT_GE(plan.why.predicted_seconds, last * (1.0 - 1e-12)) << stages << " stages, " << share;
        last = plan.why.predicted_seconds;
        sharded.insert(num_sharded(plan, graph));
      }
      EXPECT_GE(plans, 3) << stages << " stages";
      EXPECT_GE(sharded.size(), 3U) << stages << " stages: from nothing over some to more";
      EXPECT_EQ(*sharded.begin(), 0) << stages << " stages";
    }
  }
}

/// The first stage keeps more micro-batches than the last one: where memory is short it shards more.
/// By its Program, or by what is known without one.
TEST(InStages, StagesDecideForThemselves) {
  const ModelGraph graph = model();
  const Options options = {{"stages", std::int64_t{2}}};
  const Plan roomy = plan_of("3d+osdp", graph, plenty, options);
  const std::vector<std::int64_t> peaks = Lowered(graph).memory(roomy).stage_peak_bytes;
  ASSERT_NE(peaks[0], peaks[1]);
  const std::size_t fuller = peaks[0] > peaks[1] ? 0 : 1;
  for (const bool lowers : {true, false}) {
    const std::int64_t need = plan_of("3d+osdp", graph, plenty, options, lowers).why.predicted_peak_bytes;
    const Plan plan = plan_of("3d+osdp", graph, need - 1, options, lowers);
    const std::vector<OperatorDecision> decisions = resolve(plan, graph);
    const std::vector<Stage> stages = cut_into_stages(graph, plan.stages);
    std::array<int, 2> sharded{};
    for (std::size_t s = 0; s < 2; ++s) {
      for (int o = stages[s].first_operator; o < stages[s].end(); ++o) {
        const OperatorDecision& d = decisions[static_cast<std::size_t>(o)];
        sharded[s] += d.state.p.total() > 1 || d.slices > 1 ? 1 : 0;
      }
    }
    EXPECT_GT(sharded[fuller], 0) << lowers;
    EXPECT_EQ(sharded[1 - fuller], 0) << lowers;
  }
}

/// Beside tensor ranks, and where a rank has several stages: states are sharded over the ranks that hold the same part
/// of a weight, as many operators' as memory asks for, and each place fits.
TEST(InStages, StatesAreShardedOverTheCopiesOfALayout) {
  for (const bool tied : {false, true}) {
    const ModelGraph graph = model(tied);
    const Lowered account(graph);
    struct Shape {
      std::int64_t places, chunks, tensor;
    };
    for (const auto& [places, chunks, tensor] : {Shape{1, 1, 2}, {2, 1, 2}, {2, 3, 2}, {2, 3, 1}}) {
      if (tied && chunks == 1 && !is_deep()) continue;
      const Options options = {
          {"stages", places * chunks}, {"chunks", chunks}, {"tensor", tensor}, {"sum", std::string("all_reduce")}};
      const std::string shape =
          fmt::format("{} places, {} chunks, {} tensor ranks, tied {}", places, chunks, tensor, tied);
      const std::int64_t replicated = plan_of("3d+osdp", graph, plenty, options).why.predicted_peak_bytes;
      double last = 0.0;
      std::set<int> sharded;
      for (const double share : {1.0, 0.9, 0.8, 0.7}) {
        const auto capacity = static_cast<std::int64_t>(share * static_cast<double>(replicated));
        Plan plan;
        if (!out_of_memory([&] { plan = plan_of("3d+osdp", graph, capacity, options); }).empty()) continue;
        EXPECT_NO_THROW(verify(plan, graph)) << shape;
        EXPECT_EQ(parse_plan(to_text(plan), "plan.toml"), plan) << shape;
        EXPECT_EQ(plan.why.predicted_peak_bytes, account.memory(plan).peak_bytes) << shape;
        EXPECT_LE(plan.why.predicted_peak_bytes, capacity) << shape;
        EXPECT_NO_THROW(verify(programs_of(plan, graph))) << shape;
        EXPECT_GE(plan.why.predicted_seconds, last * (1.0 - 1e-12)) << shape;
        last = plan.why.predicted_seconds;
        sharded.insert(num_sharded(plan, graph));
        for (const OperatorDecision& d : resolve(plan, graph)) {
          EXPECT_TRUE(d.state.p.total() == 1 || d.state.p.total() == 8 / places / tensor) << shape;
          EXPECT_TRUE(tensor == 1 || d.slice_state.empty()) << shape << ": operators are whole";
        }
      }
      EXPECT_EQ(*sharded.begin(), 0) << shape;
      EXPECT_GE(sharded.size(), 2U) << shape << ": from nothing to some";
    }
  }
}

/// Slices beside tensor ranks are refused by name.
TEST(InStages, SlicesBesideTensorRanksAreRefused) {
  const ModelGraph graph = model();
  Plan plan = plan_of("3d+osdp", graph, 0,
                      {{"stages", std::int64_t{2}},
                       {"chunks", std::int64_t{1}},
                       {"tensor", std::int64_t{2}},
                       {"sum", std::string("scatter")}});
  plan.operators.push_back({.match = "*mlp.fc1", .slices = 2, .slice_state = {"zdp", "dp"}});
  EXPECT_THAT(refusal([&] { programs_of(plan, graph); }), HasSubstr("slices = 2 with tensor layouts"));
}

/// And before anything is lowered: what is asked for is never left out in silence.
TEST(InStages, SlicesThatAreAskedForAreThereOrRefused) {
  const ModelGraph graph = model();
  const auto with = [](std::int64_t slices, std::int64_t tensor) {
    return Options{{"stages", std::int64_t{2}},
                   {"chunks", std::int64_t{1}},
                   {"tensor", tensor},
                   {"sum", std::string("scatter")},
                   {"slices", slices}};
  };
  EXPECT_THAT(refusal([&] { plan_of("3d+osdp", graph, 0, with(3, 2)); }),
              HasSubstr("3d+osdp on 8 ranks: no data, tensor and stage degrees: 3d+osdp on 8 ranks: slices = 3 beside "
                        "tensor = 2: operators that tensor ranks share are held whole"));
  for (const std::int64_t tensor : {1, 2}) {
    const std::int64_t replicated = plan_of("3d+osdp", graph, plenty, with(0, tensor)).why.predicted_peak_bytes;
    const std::int64_t capacity = replicated * 9 / 10;
    const Plan chosen = plan_of("3d+osdp", graph, capacity, with(-1, tensor));
    EXPECT_EQ(chosen, plan_of("3d+osdp", graph, capacity, with(tensor == 1 ? 4 : 0, tensor)));
    const auto is_sliced = [](const OperatorRule& rule) { return rule.slices.value_or(0) > 1; };
    EXPECT_EQ(std::ranges::any_of(chosen.operators, is_sliced), tensor == 1);
    EXPECT_EQ(plan_of("3d+osdp", graph, capacity, with(1, tensor)),
              plan_of("3d+osdp", graph, capacity, with(0, tensor)));
  }
}

/// One stage is OSDP's own problem.
TEST(InStages, OneStageDecidesAsOsdp) {
  const ModelGraph graph = model();
  const auto decided = [&](const char* mode, std::int64_t capacity) {
    Plan base = asked_on({8, 1}, 1);
    base.device_capacity_bytes = capacity;
    base.overlap.bucket_bytes = mib / 4;
    const Options options = mode == std::string_view("osdp") ? Options{} : Options{{"stages", std::int64_t{1}}};
    return resolve(planned(mode, graph, base, options), graph);
  };
  for (const std::int64_t capacity : {14 * mib, 18 * mib, 22 * mib, 40 * mib}) {
    std::vector<OperatorDecision> osdp;
    if (!out_of_memory([&] { osdp = decided("osdp", capacity); }).empty()) {
      EXPECT_NE(out_of_memory([&] { decided("3d+osdp", capacity); }), "") << capacity;
      continue;
    }
    const std::vector<OperatorDecision> ours = decided("3d+osdp", capacity);
    for (std::size_t o = 0; o < osdp.size(); ++o) {
      EXPECT_EQ(ours[o].state, osdp[o].state) << capacity << " " << graph.operators[o].name;
      EXPECT_EQ(ours[o].slice_state, osdp[o].slice_state) << capacity << " " << graph.operators[o].name;
    }
  }
}

TEST(InStages, WhatCannotBeIsRefusedByName) {
  const ModelGraph graph = model();
  for (const char* mode : {"3d+osdp"}) {
    // Without a simulator degrees of tensor ranks cannot be compared.
    EXPECT_THAT(refusal([&] {
                  plan_of(mode, graph, 0, {{"tensor", std::int64_t{2}}});
                }),
                HasSubstr(fmt::format("{} on 8 ranks: ", mode)));
    EXPECT_THAT(refusal([&] {
                  plan_of(mode, graph, 0, {{"stages", std::int64_t{8}}});
                }),
                HasSubstr("8 stages on 8 ranks, but gpt has 6 blocks"));
    EXPECT_THAT(refusal([&] {
                  plan_of(mode, graph, 0, {{"stages", std::int64_t{3}}});
                }),
                HasSubstr("not divisible by 3 stages"));
    // Without a description of the machine degrees cannot be compared, and those that are given need not be.
    const Cluster unknown;
    EXPECT_THAT(refusal([&] {
                  planned(mode, graph, asked_on({8, 1}, 4), {}, unknown);
                }),
                HasSubstr("set strategy.stages"));
    EXPECT_EQ(planned(mode, graph, asked_on({8, 1}, 4), {{"stages", std::int64_t{4}}}, unknown).stages.count, 4);
    // Three ranks a node: a stage of two is neither whole nodes nor an even part of one.
    EXPECT_THAT(refusal([&] {
                  planned(mode, graph, asked_on({3, 2}, 4), {{"stages", std::int64_t{3}}});
                }),
                HasSubstr("states over 2 data ranks cannot be sharded"));
  }
}

}  // namespace
}  // namespace strata::test_in_stages
