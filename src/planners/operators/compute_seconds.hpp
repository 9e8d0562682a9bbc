#pragma once

/// @file
/// b · γ of OSDP's formula: what a rank computes in a step, kernel by kernel, with the kernels that lowering would emit
/// and the times of any cost model. No choice of states changes it. A closed form that orders batch sizes: the search
/// asks for every size that it tries, and the kernels' sizes change with each, so that a Program a size would take
/// longer than the search. Whichever plan is taken is timed by its Programs where [planner] can.

#include <cstdint>
#include <map>
#include <vector>

#include "cost/cost_model.hpp"
#include "ir/model/model_graph.hpp"
#include "ir/plan/plan.hpp"
#include "planners/operators/units.hpp"

namespace strata {

class ComputeSeconds {
 public:
  /// @param gathers of the plan: which operators run again. Everything given outlives this.
  ComputeSeconds(const ModelGraph& graph, const Plan& plan, const std::vector<Gathers>& gathers,
                 const CostModel& costs);

  /// Forward, recomputation and backward of a micro-batch of @p samples a rank, one after another. Updates, additions
  /// of two paths and the loss's sum are left out. @throws UserError where a profile lacks a kernel.
  double of_micro_batch(std::int64_t samples) const;

 private:
  /// Operators with equal kernels.
  struct Kind {
    const Operator* op = nullptr;
    int count = 0;
    int recomputed = 0;
  };
  double operator_seconds(const Kind& kind, std::int64_t samples) const;
  double kernel_seconds(const Operator& op, Kernel kernel, std::int64_t samples) const;

  const ModelGraph& graph_;
  DType compute_;
  const CostModel& costs_;
  std::vector<Kind> kinds_;
  std::vector<int> num_readers_;                  ///< by tensor
  mutable std::map<std::int64_t, double> known_;  ///< by samples: a search asks again and again
};

}  // namespace strata
