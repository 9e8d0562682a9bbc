#pragma once

/// @file
/// What the engines of single papers make of combinations of degrees: the plans that decisions are tried from.
///
/// States and slices by operator (`3d+osdp`), factors of states (`amsp`, data parallelism alone), and of the first
/// combinations layouts by layer (`autoddl`), one grid for all products (`summa`), degrees by layer, or one, in
/// sub-batches or in products around rings (`oases`, `merak`, `decomposed`); and, where memory is limited, every way to
/// hold all states with every way to recompute. Of pipelines that differ in their interleaved stages a rank alone one
/// is looked at: decisions lead to the others.

#include <string>

#include "planners/joint/combinations.hpp"
#include "planners/joint/dimension.hpp"
#include "planners/joint/known_plans.hpp"
#include "planners/planner.hpp"

namespace strata {

/// Asks @p known for them, until as many combinations as @p request says were made into plans that fit.
/// @param request with the options of `auto`. @return why the first of them that was refused was; empty: none was.
std::string ask_for_combinations(const PlanRequest& request, const Dimensions& dimensions,
                                 const Combinations& combinations, KnownPlans& known);

}  // namespace strata
