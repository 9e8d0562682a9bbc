#pragma once

/// @file
/// What a plan decides, in one line that a person compares with another one.

#include <string>

#include "ir/model/model_graph.hpp"
#include "ir/plan/plan.hpp"

namespace strata {

/// "256 ranks × tensor 2 to 4 (all_reduce) × stage 16 (4 a rank), 16 micro-batches", or "data 8 × stage 1, 4
/// micro-batches" where no product is shared: degrees alone, the same for plans that differ elsewhere.
std::string degrees_of_plan_in_words(const Plan& plan);

/// The same with the schedule of stages, and with states, recomputation, sub-batches and placement where something is
/// decided about them: "...; p 1x1, g 1x1, os 8x128; recompute block; 2 sub-batches". Nothing is said of overlap.
std::string plan_in_words(const Plan& plan, const ModelGraph& graph);

}  // namespace strata
