#pragma once

/// @file
/// What a plan decides, in one line that a person compares with another one.

#include <string>

#include "ir/model/model_graph.hpp"
#include "ir/plan/plan.hpp"

namespace strata {

/// The most ranks that share a product, p1 p2 of its layout; 1 where none is shared.
int most_tensor_ranks(const Plan& plan);

/// "data 64 × tensor 4 (all_reduce) × stage 16 (4 a rank), 16 micro-batches": degrees alone, equal for plans that
/// differ in nothing else.
std::string degrees_of_plan_in_words(const Plan& plan);

/// The same, and what differs from a plan that replicates states, saves all activations and overlaps nothing of what
/// can be left out: "..., os 8x128, recompute block, 2 sub-batches".
std::string plan_in_words(const Plan& plan, const ModelGraph& graph);

}  // namespace strata
