#pragma once

/// @file
/// The generators: one a schedule, each in a file of its name. A generator sees stages, segments and micro-batches; no
/// buffers, collectives or streams.

#include <functional>

#include "ir/order/step_order.hpp"
#include "ir/plan/plan.hpp"
#include "lower/order/step_part.hpp"

namespace strata {

/// The order of a rank that computes @p part of a step.
using OrderGenerator = std::function<StepOrder(const StepShape& shape, const StepPart& part)>;
/// Of schedules whose ranks each hold one stage, with all of its micro-batches.
using StageOrderGenerator = std::function<StepOrder(const StepShape& shape, int stage)>;
OrderGenerator by_stage(StageOrderGenerator generator);

#define STRATA_DECLARE(name, word) StepOrder name##_order(const StepShape& shape, int stage);
STRATA_SCHEDULES(STRATA_DECLARE)
#undef STRATA_DECLARE

/// Empty for kinds whose ranks may hold several stages, and those without a generator, see order_generator_of().
StageOrderGenerator order_generator(ScheduleKind kind);
/// Of the plan's schedule. @throws Unsupported where there is none.
OrderGenerator order_generator_of(const Plan& plan);

}  // namespace strata
