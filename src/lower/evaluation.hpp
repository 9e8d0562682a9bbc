#pragma once

/// @file
/// Evaluation: what training keeps, tried on samples that it does not train on. It is lowered as training is, from a
/// model and a plan of its own.
///
/// The model has no dropout, batch norms that normalise by the running statistics, which are parameters there, and,
/// instead of the loss alone, whether the target is the class with the largest logit, or among the five largest.
/// The plan is one for every mode: every rank takes samples of its own in f32 and holds its share of all parameters,
/// which it gathers before they are read (ZeRO-3, forward alone). So all that is evaluated depends on the values
/// alone, and needs less memory than any training of them.

#include <cstdint>

#include "ir/model/model_graph.hpp"
#include "ir/plan/plan.hpp"
#include "lower/lower.hpp"

namespace strata {

/// The model as evaluation has it. Parameters keep their names; behind them stand `<norm>.running_mean` and
/// `<norm>.running_variance` of batch norms, in their order.
ModelGraph evaluation_graph(const ModelGraph& graph);

/// On the ranks of @p training. @param samples at a time, over all ranks.
Plan evaluation_plan(const Plan& training, std::int64_t samples);

/// One repetition of the body evaluates a batch. @param plan of evaluation_plan().  @param graph of evaluation_graph().
/// @throws Unsupported as lower() does.
Program lower_evaluation(const Plan& plan, const ModelGraph& graph, int rank, const KernelTraits& kernels);

}  // namespace strata
