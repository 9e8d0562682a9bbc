#pragma once

/// @file
/// All micro-batches of a step but the first ones and the last ones are alike: same kernels, same messages, same waits;
/// of interleaved stages as many as there are places are, one round of them like the next. Once what a micro-batch does
/// begins and ends as much later than in the one that it repeats, in every instruction of every rank, it does so in
/// each that follows, since a step is only maxima and sums of times; ranks that never meet meanwhile may be quicker,
/// and wait in the end. Then a step of many micro-batches takes what one of few takes, and that much more for each that
/// is left out.

#include <optional>
#include <vector>

#include "cost/cost_model.hpp"
#include "ir/plan/plan.hpp"
#include "ir/program/alike_micro_batches.hpp"
#include "predict/prediction.hpp"
#include "sim/simulate.hpp"

namespace strata::predict {

/// Which micro-batches of a step of few show whether those of the whole step repeat.
struct ComparedMicroBatches {
  int simulated = 0;  ///< micro-batches of the step of few
  MicroBatchRun run{};
  int beside = 1;  ///< so many before the first and behind the last may be under way beside them
};

/// One after another: of six the third to the fifth. In a pipeline of S places those behind the ones with which it
/// fills, and of them as many as are under way at a time and those that they repeat, so that there is a moment at which
/// all that is under way anywhere is compared. With one forward and one backward in turn S are under way, 2 S fill it,
/// and each repeats the one before, or the one before that; of interleaved stages 2 S are under way, 3 S fill it, and
/// each repeats one of the round before. Where those do not repeat, later ones may: messages of the first micro-batches
/// may take longer than those compute, and first fit may settle late. So twice as many micro-batches follow, and four
/// times. None where @p plan has so few micro-batches that simulating all of them is less work, or its schedule is
/// another one.
/// @return in the order in which they are to be asked.
std::vector<ComparedMicroBatches> compared_micro_batches(const Plan& plan);

/// Of a step of few micro-batches.
struct SimulatedFew {
  LoweredJob lowered;
  SimulationResult simulation;
  const std::vector<SimulatedStep>& steady_step() const {
    return simulation.steps[static_cast<std::size_t>(simulation.steady_step)];
  }
};

/// By how much each of @p compared is later than the one that it repeats, on the slowest rank; nothing where they do
/// not repeat. Ranks that never meet in them may be quicker. Where steps overlap, nothing of another step is under way
/// beside those compared.
/// @param few of @p compared.simulated micro-batches of @p plan, with its events.
std::optional<double> pace_seconds(const Plan& plan, const ComparedMicroBatches& compared, const SimulatedFew& few);

/// Each class takes @p pace_seconds longer for @p few than for @p fewer: behind the last micro-batch all wait for the
/// slowest.
bool takes_longer_by(double pace_seconds, const SimulatedFew& few, const SimulatedFew& fewer);

/// A step of all micro-batches of a plan, told from few of them.
struct RepeatedStep {
  LoweredJob lowered;           ///< of the few where its arenas are those of all, or of all
  SimulationResult simulation;  ///< of all: one step, without events
  results::StepRow row;         ///< of all
};

/// One step of @p point, which is like all others. Nothing where it has too few micro-batches, or they do not repeat,
/// or steps are not alike, or noise or stragglers tell its ranks apart, or the plan cannot be lowered: which is to be
/// said of all of them.
std::optional<RepeatedStep> repeated_step(const PreparedPoint& point, const CostModel& costs);

}  // namespace strata::predict
