#pragma once

/// @file
/// Of `3d+osdp` the grid search over data x stage degrees, and what each stage decides about its own operators.
///
/// Stages run side by side, so the least that each takes is best for all of them: for given degrees the stages are
/// independent problems over their own operators, data ranks and memory. A parameter that several stages use is the
/// exception: it is held one way, and both ways are tried. With t_s the communication and c_s the computation of stage
/// s and micro-batch, S stages, M micro-batches:
///     step = max_s (M c_s + t_s) + (S-1) max_s c_s + 2 (S-1) · message
///
/// Seconds and the bytes of micro-batches in flight are closed forms that order degrees and choices: a Program of all
/// stages takes too long to be asked about each. What a stage's Program needs more or less than the closed form moves
/// the memory that its choices are given, and what is taken has been asked of its Programs.

#include <span>

#include "planners/planner.hpp"

namespace strata {

/// Those of osdp too.
std::span<const OptionRow> staged_options();

/// The degrees that take the fewest seconds of those that fit. Whether they fit is the Program's peak where somebody
/// lowers, else the closed form's. @throws OutOfMemory where none fits: what each would need.
Plan plan_in_stages(const PlanRequest& request);

}  // namespace strata
