#pragma once

/// @file
/// One forward, one backward, on ranks that hold several stages each. With S ranks, v stages a rank and M micro-batches
/// (a multiple of S), rank s from 0 holds stages s, s + S, ..., and takes its passes in the order of
/// partition/pipeline_passes.hpp.
///
/// Where stages take equally long and messages no time, f and b seconds of all stages of a rank forward and backward,
/// a step takes (M + (S - 1)/v)(f + b): the bubble of 1f1b, (S - 1)(f + b), becomes a v-th, for (vS - 1)/(S - 1) times
/// as many messages.
///
/// Source: Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM, SC 2021,
/// sec. 2.2.2.

#include "ir/order/step_order.hpp"
#include "lower/order/step_part.hpp"

namespace strata {

/// @throws InternalError where the micro-batches are no multiple of the ranks.
StepOrder interleaved_order(const StepShape& shape, const StepPart& part);

}  // namespace strata
