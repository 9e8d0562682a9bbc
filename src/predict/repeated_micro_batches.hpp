#pragma once

/// @file
/// All micro-batches of a step but the first ones and the last ones are alike: same kernels, same messages, same waits.
/// Once what a micro-batch does begins and ends as much later than in the one before, in every instruction of every
/// rank, it does so in each that follows, since a step is only maxima and sums of times; ranks that exchange nothing
/// meanwhile may be quicker, and wait in the end. Then a step of many
/// micro-batches takes what one of few takes, and that much more for each that is left out.

#include <optional>
#include <vector>

#include "cost/cost_model.hpp"
#include "ir/plan/plan.hpp"
#include "predict/prediction.hpp"
#include "sim/simulate.hpp"

namespace strata::predict {

/// Which micro-batches of a step of few show whether those of the whole step repeat.
struct ComparedMicroBatches {
  int simulated = 0;  ///< micro-batches of the step of few
  int first = 0;      ///< of those that are compared with each other, from 0 on
  int last = 0;
};

/// One after another: of six the third to the fifth. In a pipeline of S places with one forward and one backward in
/// turn, where S of them are under way at a time: of 4 S + 4 those behind the first 2 S, with which the pipeline fills,
/// S + 3 of them, so that there is a moment at which all that is under way anywhere is compared. Where those do not
/// repeat, later ones may: messages of the first micro-batches may take longer than those compute, and first fit may
/// settle late. So twice as many micro-batches follow, and four times. None where @p plan has so few micro-batches that
/// simulating all of them is less work, or its schedule is another one.
/// @return in the order in which they are to be asked.
std::vector<ComparedMicroBatches> compared_micro_batches(const Plan& plan);

/// @p simulation, of a step of @p compared.simulated micro-batches of @p plan with its events, has micro-batches that
/// repeat each @p period_seconds, or on ranks that exchange nothing in them in less. Where steps overlap, nothing of
/// another step is under way beside those compared.
bool micro_batches_repeat(const Plan& plan, const ComparedMicroBatches& compared, const LoweredJob& lowered,
                          const SimulationResult& simulation, double period_seconds);

/// A step of all micro-batches of a plan, told from few of them.
struct RepeatedStep {
  LoweredJob lowered;           ///< of the few; its arenas are those of all
  SimulationResult simulation;  ///< of all: one step, without events
  results::StepRow row;         ///< of all
};

/// One step of @p point, which is like all others. Nothing where it has too few micro-batches, or they do not repeat,
/// or steps are not alike, or noise or stragglers tell its ranks apart, or the plan cannot be lowered: which is to be
/// said of all of them.
std::optional<RepeatedStep> repeated_step(const PreparedPoint& point, const CostModel& costs);

}  // namespace strata::predict
