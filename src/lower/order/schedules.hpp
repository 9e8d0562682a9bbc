#pragma once

/// @file
/// The generators: one a schedule, each in a file of its name. A generator sees stages, segments and micro-batches; no
/// buffers, collectives or streams.

#include <functional>

#include "ir/order/step_order.hpp"
#include "ir/plan/plan.hpp"

namespace strata {

/// The order of a rank that holds stage @p stage.
using OrderGenerator = std::function<StepOrder(const StepShape& shape, int stage)>;

#define STRATA_DECLARE(name, word) StepOrder name##_order(const StepShape& shape, int stage);
STRATA_SCHEDULES(STRATA_DECLARE)
#undef STRATA_DECLARE

/// Empty for a schedule that only plans can say so far.
OrderGenerator order_generator(ScheduleKind kind);
/// Of the plan's schedule. @throws Unsupported where there is none.
OrderGenerator order_generator_of(const Plan& plan);

}  // namespace strata
