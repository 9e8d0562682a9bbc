/// @file
/// A plan and its normal form have the same Programs, whatever it says of what it does not have.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lower/lower.hpp"
#include "models/model.hpp"
#include "planners/joint/normal_form.hpp"

namespace strata::test_normal_form {
namespace {

std::int64_t no_workspace(const Program& /*program*/, const Instruction& /*instruction*/) { return 0; }

struct Change {
  std::string words;
  std::function<void(Plan&)> make;
};

const std::vector<Change> idle_where_nothing_is_held_in_parts = {
    {"gather", [](Plan& p) { p.overlap.gather = "next_layer"; }},
    {"gather_backward", [](Plan& p) { p.overlap.gather_backward = "next_module"; }},
    {"reduce_scatter", [](Plan& p) { p.overlap.reduce_scatter = "grad_input"; }},
    {"spread_bytes", [](Plan& p) { p.overlap.spread_bytes = 1 << 20; }},
    {"gradients", [](Plan& p) { p.optimizer.gradients = "reduce_scatter"; }},
    {"dealt", [](Plan& p) { p.optimizer.sharding = "inter_tensor", p.optimizer.spread = "broadcast"; }},
    {"regather", [](Plan& p) { p.gathered_after_recompute = "regather"; }},
    {"states", [](Plan& p) { p.operators.push_back({.match = "block[0].*", .state = StateFactors{}}); }},
};
const std::vector<Change> others = {
    {"broadcast", [](Plan& p) { p.overlap.broadcast = "next_forward"; }},
    {"all_reduce", [](Plan& p) { p.overlap.all_reduce = "none"; }},
    {"bucket_bytes", [](Plan& p) { p.overlap.bucket_bytes = 1024; }},
};

/// On eight ranks, two samples each, with two micro-batches.
std::vector<Plan> plans() {
  Plan data;
  data.mesh = {.nodes = 2, .ranks_per_node = 4, .axes = {{"data", 8}}};
  data.global_batch = 32;
  data.schedule.micro_batches = 2;
  Plan stages = data;
  stages.mesh.axes = {{"stage", 2}, {"data", 4}};
  stages.stages.count = 2;
  stages.schedule.kind = ScheduleKind::one_forward_one_backward;
  Plan tensor = data;
  tensor.mesh.axes = {};
  const Layout columns{.p0 = {2, 2}, .p1 = {2, 1}, .p2 = {1, 1}}, rows{.p0 = {2, 2}, .p1 = {1, 1}, .p2 = {2, 1}};
  tensor.operators = {{.match = "*", .layout = columns, .sum = PartialSums::all_reduce}};
  for (const char* match : {"embedding", "*.proj", "*.fc2"})
    tensor.operators.push_back({.match = match, .layout = rows});
  std::vector<Plan> all = {data, stages, tensor};
  for (const Recompute kind : {Recompute::none, Recompute::block}) {
    for (const StateFactors& state :
         {StateFactors{.p = {}, .g = {}, .os = {4, 1}}, StateFactors{.p = {}, .g = {4, 1}, .os = {4, 1}},
          StateFactors{.p = {4, 1}, .g = {4, 1}, .os = {4, 1}}, StateFactors{.p = {2, 1}, .g = {2, 1}, .os = {4, 1}},
          StateFactors{.p = {4, 1}, .g = {4, 1}, .os = {4, 1}, .p_backward = Factor{2, 1}}}) {
      for (const char* match : {"*", "block[1].*"}) {
        Plan sharded = data;
        sharded.recompute = kind;
        sharded.operators = {{.match = match, .state = state}};
        all.push_back(sharded);
      }
    }
    Plan sliced = data;
    sliced.recompute = kind;
    sliced.operators = {{.match = "*.fc1", .slices = 2, .slice_state = {"zdp", "dp"}}};
    all.push_back(sliced);
  }
  return all;
}

TEST(NormalForm, OfAPlanHasItsPrograms) {
  const ModelGraph graph = build_model({.name = "gpt-nano", .layers = 2});
  int num_changed = 0, num_compared = 0;
  for (const Plan& plan : plans()) {
    std::vector<Change> changes = idle_where_nothing_is_held_in_parts;
    changes.insert(changes.end(), others.begin(), others.end());
    for (const Change& change : changes) {
      Plan changed = plan;
      change.make(changed);
      const Plan normal = in_normal_form(changed, graph);
      EXPECT_EQ(in_normal_form(normal, graph), normal) << change.words;
      if (normal == changed) continue;
      ++num_changed;
      for (const int rank : {0, 3, 7}) {
        const Program lowered = lower(normal, graph, rank, no_workspace);
        EXPECT_EQ(lowered, lower(changed, graph, rank, no_workspace)) << change.words << "\n" << to_text(changed);
        ++num_compared;
      }
    }
  }
  EXPECT_GT(num_changed, 50);
  EXPECT_EQ(num_compared, 3 * num_changed);
}

TEST(NormalForm, SaysNothingOfPartsWhereNothingIsHeldInParts) {
  const ModelGraph graph = build_model({.name = "gpt-nano", .layers = 2});
  const Plan plan = plans().front();
  for (const Change& change : idle_where_nothing_is_held_in_parts) {
    Plan changed = plan;
    change.make(changed);
    EXPECT_EQ(in_normal_form(changed, graph), plan) << change.words;
  }
  for (const Change& change : others) {
    Plan changed = plan;
    change.make(changed);
    EXPECT_EQ(in_normal_form(changed, graph), changed) << change.words;
  }
}

TEST(NormalForm, OfRulesThatMatchNothingIsThePlanItself) {
  Plan plan = plans().front();
  plan.operators = {{.match = "nobody", .state = StateFactors{}}};
  EXPECT_EQ(in_normal_form(plan, build_model({.name = "gpt-nano", .layers = 2})), plan);
}

}  // namespace
}  // namespace strata::test_normal_form
