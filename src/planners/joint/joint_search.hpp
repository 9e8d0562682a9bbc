#pragma once

/// @file
/// The search of `auto` over the union of the spaces that single papers search.
///
/// Combinations of stages, stages a rank, tensor degrees and micro-batches come in the order of what a step takes at
/// least with them (combinations.hpp), and the engines of single papers make plans of the first
/// (plans_of_combinations.hpp). Then one decision at a time (neighbourhood.hpp), whichever paper it is of
/// (local_search.hpp): once through all of them from the best plan of each number of places and tensor ranks
/// (starts.hpp), since how fast a plan is before says little of how fast its neighbours are; and again from those that
/// are nearly as fast as the best by then, until going through all is worth less than a thousandth of the step. Then
/// what every single mode plans (single_plans.hpp) is a candidate, from which decisions are tried in the same way.
/// Last, all decisions are tried from the best plan there is, as long as any is worth something. Whether a plan fits
/// and what it takes is its Program's memory and its simulated seconds throughout; closed forms, and few of a model's
/// blocks, order, and leave out what is no better; of the best plan's decisions only closed forms do, which are bounds.
///
/// The answer is no proven optimum: its gap to what the kernels of the best combination of degrees take alone is told.

#include "planners/planner.hpp"

namespace strata {

/// @param request with the options of `auto`. @throws what `auto` refuses, see planners/auto.cpp.
Plan best_joint_plan(const PlanRequest& request);

}  // namespace strata
