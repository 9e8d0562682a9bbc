#pragma once

/// @file
/// What was predicted of a run beside what it measured, as rows of results.

#include <span>
#include <vector>

#include "comm/world.hpp"
#include "ir/program/program.hpp"
#include "ir/timeline/timeline.hpp"
#include "predict/prediction.hpp"
#include "results/rows.hpp"

namespace strata::run {

/// Memory and bytes sent, which the Programs tell. The fullest rank speaks for all, predicted and measured alike.
/// Collective. @param last the last step that was measured, on rank 0.
std::vector<results::PredictionRow> account_predictions(const comm::World& world, const Program& program,
                                                        const MemoryPeak& peak, const results::StepRow& last);

/// Memory of the evaluation, likewise. Collective. @param last on rank 0.
results::PredictionRow evaluation_prediction(const comm::World& world, const Program& evaluation,
                                             const results::EvaluationRow& last);

/// A step as it is predicted.
struct PredictedStep {
  const predict::Prediction& prediction;
  const results::StepRow& row;
};

/// Seconds of the step and its parts, medians over the measured steps; of each kernel and collective, on rank 0, means
/// over the steps whose timeline was kept. For rank 0. @param program its own, as @p timeline is.
std::vector<results::PredictionRow> time_predictions(const Program& program, const PredictedStep& predicted,
                                                     std::span<const results::StepRow> measured_rows,
                                                     std::span<const TimelineEvent> timeline);

}  // namespace strata::run
