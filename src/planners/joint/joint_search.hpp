#pragma once

/// @file
/// The search of `auto` over the union of the spaces that single papers search.
///
/// Candidates first: what every single mode plans, and, for combinations of stages, stages a rank, tensor degrees and
/// micro-batches in the order of what they take at least (pipelines/step_bound.hpp), what the engines of single papers
/// make of them, where they may fit: states and slices by operator (`3d+osdp`), factors of states (`amsp`, data
/// parallelism alone), layouts by layer (`autoddl`), one grid for all products (`summa`), degrees by layer, or one, in
/// sub-batches or in products around rings (`oases`, `merak`, `decomposed`), and, where memory is limited, every way to
/// hold all states with every way to recompute. Of pipelines that differ in their interleaved stages a rank alone one
/// is looked at: decisions lead to the others. Then one decision at a time (moves.hpp), whichever paper it is of: once
/// through all of them from the best of these of each number of places and tensor ranks, since how fast a plan is
/// before says little of how fast its neighbours are; and again from those that are nearly as fast as the best by then,
/// until going through all is worth less than a thousandth of the step; of the best that is found so, as long as any is
/// worth something. Whether a plan fits and what it takes is its Program's memory and its simulated seconds throughout;
/// closed forms, and few of a model's blocks, order, and leave out what is no better; of the best plan's decisions only
/// closed forms do, which are bounds.
///
/// The answer is no proven optimum: its gap to what the kernels of the best combination of degrees take alone is told.

#include "planners/planner.hpp"

namespace strata {

/// @param request with the options of `auto`. @throws what `auto` refuses, see planners/auto.cpp.
Plan best_joint_plan(const PlanRequest& request);

}  // namespace strata
