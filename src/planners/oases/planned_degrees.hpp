#pragma once

/// @file
/// Oases' planner of a degree a node (sec. 4): from a model to the ways to cut it that are worth a simulation.

#include <span>
#include <string>
#include <vector>

#include "planners/layouts/layout_planning.hpp"
#include "planners/oases/chain_of_model.hpp"

namespace strata {

/// A way that the chain proposes.
struct PlannedDegrees {
  std::string name;  ///< "degrees 2*22+4*10 of attentions and MLPs"
  NodePlan nodes;
  int sub_batches = 1;
  std::string binding{};  ///< what keeps the chain from faster ones, in words
};

class DegreePlanning {
 public:
  /// @param request with the options search, reshard, selective and cost. @param tensors ascending: the degrees that a
  /// node may have. @param plan_of what lowers choices. @param request, @param planning and @param plan_of outlive
  /// this.
  DegreePlanning(const PlanRequest& request, const LayoutPlanning& planning, std::span<const Factor> tensors,
                 const PlanOfPart& plan_of);

  /// Those whose Programs fit into the capacity of the best by the chain, with what a step has once and without, and of
  /// the two best that are the same everywhere. None where nothing fits.
  std::vector<PlannedDegrees> ways(int sub_batches) const;

  /// What ways() searches first, in free MPS.
  std::string linear_program(int sub_batches) const;

 private:
  Chain chain(int sub_batches) const;
  std::string name(std::span<const int> choices) const;
  ChainAnswer search(const Chain& chain) const;
  std::vector<ChainAnswer> best_uniform(const Chain& chain) const;
  /// Of answers that fit the chain's account of memory, the first whose Program fits too.
  ChainAnswer that_fits(Chain chain) const;
  std::string binding(const Chain& chain, const ChainAnswer& answer) const;
  std::int64_t peak_bytes(std::span<const int> choices, int sub_batches) const;

  const PlanRequest& request_;
  const LayoutPlanning& planning_;
  const PlanOfPart& plan_of_;
  ChainCosts costs_;
  ChainNodes nodes_;
  std::vector<NodeChoice> options_;
};

}  // namespace strata
