#pragma once

/// @file
/// What a planner that compares plans by their simulated steps is told where a test plans without an experiment: every
/// plan is lowered and simulated with what a described cluster takes. Nothing is priced alone, so that nothing is left
/// out before it is simulated.

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "cost/cost_model.hpp"
#include "lower/lower.hpp"
#include "lower/rank_classes.hpp"
#include "sim/steady_state.hpp"
#include "support/lowered_account.hpp"

namespace strata {

class SimulatedAccount final : public LoweredAccount {
 public:
  /// @param graph outlives this.
  SimulatedAccount(const ModelGraph& graph, const Cluster& cluster)
      : LoweredAccount(graph), graph_(graph), costs_(analytic_costs(cluster)) {}
  bool knows_seconds() const override { return true; }
  Evaluation operator()(const Plan& plan) const override {
    Evaluation evaluation = memory(plan);
    if (!evaluation.feasible()) return evaluation;
    RankClasses classes = rank_classes(plan, graph_);
    std::vector<Program> programs;
    for (const int rank : classes.representatives) {
      programs.push_back(lower(plan, graph_, rank, [](const Program&, const Instruction&) { return 0; }));
    }
    Job job{
        .programs = {}, .class_of_rank = std::move(classes.class_of_rank), .ranks_per_node = plan.mesh.ranks_per_node};
    for (const Program& program : programs) job.programs.push_back(&program);
    evaluation.step_seconds = steady_step_seconds(simulate_steady(job, *costs_, {}));
    if (plan.device_capacity_bytes > 0 && evaluation.peak_bytes > plan.device_capacity_bytes) {
      evaluation.missing = "more than the capacity";
    }
    return evaluation;
  }

 private:
  const ModelGraph& graph_;
  std::unique_ptr<CostModel> costs_;
};

/// Modes that plan nothing for several ranks unless they are told what steps take.
inline bool compares_steps(std::string_view mode) { return mode == "3d" || mode == "auto"; }

/// As Training::evaluation asks for it.
inline std::unique_ptr<Evaluate> simulated_account(const ModelGraph& graph, const Cluster& cluster) {
  return std::make_unique<SimulatedAccount>(graph, cluster);
}

}  // namespace strata
