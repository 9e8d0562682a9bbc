#pragma once

/// @file
/// A step without a pipeline does its micro-batches one after another, and all but the first ones and the last one are
/// alike: same kernels, same messages, same waits. Once what a micro-batch does begins and ends as much later than in
/// the one before, in every instruction of every rank, it does so in each that follows, since a step is only maxima
/// and sums of times. Then a step of many micro-batches takes what one of few takes, and that much more for each that
/// is left out.

#include <optional>

#include "cost/cost_model.hpp"
#include "ir/plan/plan.hpp"
#include "predict/prediction.hpp"
#include "sim/simulate.hpp"

namespace strata::predict {

/// Micro-batches that show whether they repeat: of six the third, fourth and fifth are compared.
inline constexpr int compared_micro_batches = 6;

/// @p plan has so many micro-batches, and nothing of another step under way beside them, that simulating
/// compared_micro_batches and one fewer is less work.
bool has_many_alike_micro_batches(const Plan& plan);

/// @p simulation, of a step of compared_micro_batches of @p plan with its events, has micro-batches that repeat each
/// @p period_seconds.
bool micro_batches_repeat(const Plan& plan, const LoweredJob& lowered, const SimulationResult& simulation,
                          double period_seconds);

/// A step of all micro-batches of a plan, told from few of them.
struct RepeatedStep {
  LoweredJob lowered;           ///< of compared_micro_batches; its arenas are those of all
  SimulationResult simulation;  ///< of all: one step, without events
  results::StepRow row;         ///< of all
};

/// One step of @p point, which is like all others. Nothing where it has too few micro-batches, or they do not repeat, or
/// noise or stragglers tell its ranks apart, or the plan cannot be lowered: which is to be said of all of them.
std::optional<RepeatedStep> repeated_step(const PreparedPoint& point, const CostModel& costs);

}  // namespace strata::predict
