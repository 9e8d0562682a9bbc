#pragma once

/// @file
/// How long a pipeline's passes take in their order (partition/pipeline_passes.hpp), each as a whole.

#include <span>

#include "ir/plan/plan.hpp"
#include "planners/pipelines/stage_prices.hpp"

namespace strata {

/// @p plan takes its passes in that order: 1f1b, and interleaved stages whose places divide the micro-batches, each of
/// one sub-batch.
bool takes_passes_in_turn(const Plan& plan);

/// Seconds until the first place has ended its last pass, each place taking its own in order, and each pass behind the
/// one of the stage before it, or in backward behind it. A message is waited for where the Program has its receive: so
/// that it travels under the pass before the one that reads it, or, a forward's behind a backward, between the two.
/// @param stages of @p plan, which takes its passes in turn.
/// @param messages seconds, by stage, from or to the one before it.
/// @param has_one_stream see OperatorsPrices: what a pass sends before its first kernel goes behind all that the one
/// before it at its place sends, and neither has kernels meanwhile.
/// @param sends_behind_kernels else a message leaves before the gradients of weights are made.
double seconds_of_passes_in_turn(const Plan& plan, std::span<const StagePrice> stages, std::span<const double> messages,
                                 bool has_one_stream, bool sends_behind_kernels);

}  // namespace strata
