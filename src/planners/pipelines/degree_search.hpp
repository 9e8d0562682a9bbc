#pragma once

/// @file
/// The degrees with the fastest simulated step of those that fit: every combination has bounds in closed form of what
/// it takes and holds (step_bound.hpp). Those that hold too much are left out, and of the others the simulator is asked
/// in the order of what they take, until no bound is below the best answer. So the result is that of asking it of every
/// combination. Where states are decided by Programs of few blocks or micro-batches, and what so fits does not, what it
/// takes is the combination's next bound: more has to be sharded, which is taken to be no faster and not proven.

#include <cstdint>
#include <functional>
#include <vector>

#include "base/infinity.hpp"
#include "planners/pipelines/degrees.hpp"
#include "planners/pipelines/step_bound.hpp"

namespace strata {

/// A plan of some degrees whose states are decided.
struct PlanWithStates {
  Plan plan;
  double seconds = 0.0;         ///< a step, by closed form; 0: nobody had to know
  std::int64_t peak_bytes = 0;  ///< 0: the same; of what does not fit a bound from below
};

/// How closely states are to be looked at.
struct StatesWanted {
  PeaksOf peaks = PeaksOf::all;    ///< which Programs say what fits
  double most_seconds = infinity;  ///< by closed form: of what takes longer it need not be known whether it fits
};

/// What may be made of a plan of @p degrees, whose states are replicated: the plans of which the fastest that fits is
/// taken, or one that does not fit. Gradients may be summed otherwise.
using DecideStates = std::function<std::vector<PlanWithStates>(const ParallelDegrees& degrees, const Plan& replicated,
                                                               const StatesWanted& wanted)>;

/// What the options leave open (asked_degrees()), or the one combination that they do not; states are replicated. Of
/// equal seconds the one that is smaller.
/// @throws Unsupported where none can be: what the first refuses. OutOfMemory where none fits: what those that need
/// least need. CostsUnknown where there are several and nobody simulates.
Plan fastest_degrees(const PlanRequest& request);

/// The same where @p decide says how states are held. Where somebody simulates, whose Programs have the last word, it
/// is asked by few of them first, and by all where what so fits does not and may be the fastest; degrees that copy
/// nothing, of which there is nothing to decide, before the others. What takes twice the best step by closed form,
/// which has nothing sent under anything, is not simulated. Where nobody does, whole weights with a stage a rank are
/// compared by closed form. @param states all that @p decide may make of them.
Plan fastest_degrees(const PlanRequest& request, const DecideStates& decide, HeldStates states);

}  // namespace strata
