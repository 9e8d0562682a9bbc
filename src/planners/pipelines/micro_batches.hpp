#pragma once

/// @file
/// How many micro-batches a step is cut into where the experiment leaves it open: one, but of stages as many as take
/// the least time, so that nobody compares with a pipeline that stands empty most of the step.

#include <cstdint>

#include "planners/planner.hpp"

namespace strata {

/// Every one is planned, and a Program grows with its micro-batches. A file may ask for more.
inline constexpr std::int64_t most_micro_batches_tried = 4096;

/// The plan of @p planner. Where @p request asks for stages of a pipeline, every number of micro-batches up to 4096 is
/// looked at that divides the batch, gives all data ranks equally many samples and is not refused by the mode: the one
/// that fits and has the fewest predicted seconds is taken, the smaller of equals; where nobody knows seconds, the
/// largest (AutoDDL, section 5.4: the smallest micro-batches keep a pipeline fullest). A mode with an option
/// `micro_batches` searches them itself, beside what else it chooses.
/// @throws Unsupported; OutOfMemory: what the mode says of one micro-batch where it refuses every number.
Plan plan_with_micro_batches(const Planner& planner, const PlanRequest& request);

}  // namespace strata
