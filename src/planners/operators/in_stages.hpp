#pragma once

/// @file
/// Of `3d+osdp` what each place of a pipeline decides about its own operators, for degrees that are given.
///
/// Places run side by side, so the least that each takes is best for all of them: they are independent problems over
/// the operators of their stages, over the ranks that hold the same part of a weight (data ranks, of layouts p0), and
/// memory. A parameter that several places use is the exception: it is held one way, and both ways are tried. With t_p
/// the communication and c_p the computation of place p and micro-batch, S places of v stages, M micro-batches:
///     step = max_p (M c_p + t_p) + (S-1) / v · max_p c_p + 2 (S-1) · message
///
/// Seconds and bytes are closed forms that order choices: a Program of all places takes too long to be asked about
/// each. Of tensor ranks they count their part of a product, and no collective of layouts, which no choice of states
/// changes. What a place's Program needs more or less than the closed form moves the memory that its choices are given:
/// by Programs of as few micro-batches as fill the pipeline, and what these let fit is asked of all of them on request.

#include <span>
#include <vector>

#include "cost/cost_model.hpp"
#include "planners/pipelines/degree_search.hpp"
#include "planners/planner.hpp"

namespace strata {

/// Those of degrees, and osdp's.
std::span<const OptionRow> staged_options();

/// The option `slices`, or what the planner takes where it is left to it: osdp's number, and beside tensor ranks none,
/// as others are refused there (refuse_slices()).
int slices_by_degrees(const PlanRequest& request, const ParallelDegrees& degrees);

/// The request's base with what its options say of how states are held and travel, beside which ranks hold them.
Plan with_options_of_states(const PlanRequest& request);

/// The fewest seconds by closed form within the memory: with slices of operators where no tensor ranks share them; and,
/// where somebody simulates and memory binds, of whole operators, and all of them sharded. Whether a plan fits is the
/// Program's peak where somebody lowers, else the closed form's; of nothing that fits the least.
/// @param replicated of a request whose base is with_options_of_states().
/// @param wanted of peaks few: what fits by few micro-batches or blocks is taken to fit. Of plans that take longer than
/// is wanted there is one.
std::vector<PlanWithStates> states_in_stages(const PlanRequest& request, const CostModel& costs,
                                             const ParallelDegrees& degrees, const Plan& replicated,
                                             const StatesWanted& wanted);

}  // namespace strata
