#pragma once

/// @file
/// The plan of cyclic data parallelism on a rank a micro-batch whose cuts and table of fresh reads are left to the
/// planner: the model is priced operator by operator, once, and freshest_ring() chooses.

#include <vector>

#include "ir/plan/plan.hpp"
#include "planners/cyclic/ring_problem.hpp"
#include "planners/planner.hpp"

namespace strata {

/// What a stage of a plan can begin with, and what the pieces between cost.
struct PricedRing {
  RingProblem problem{};
  std::vector<int> begins{};  ///< operators, by piece
};

/// Kernels of a second micro-batch on one rank, which adds to the gradients of the first; messages between neighbours
/// on different nodes where there are several. No piece begins between operators that share a parameter.
/// @param plan a rank a micro-batch; its table and cuts do not count.
/// @throws Unsupported for fewer pieces than stages; CostsUnknown where nobody knows what kernels take.
PricedRing priced_ring(const PlanRequest& request, const Plan& plan);

/// @p plan with the cuts and the table that take the least time, or, of those within strategy.within times it, the most
/// fresh reads; with the runner-up, and what is left open.
Plan planned_ring(const PlanRequest& request, Plan plan);

}  // namespace strata
