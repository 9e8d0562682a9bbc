#pragma once

/// @file
/// Which ranks do the same, or need as much memory, where operators are laid out: see lower/rank_classes.hpp.

#include <span>
#include <vector>

#include "ir/plan/plan.hpp"
#include "lower/rank_classes.hpp"
#include "lower/rank_model.hpp"

namespace strata {

/// Told apart are stages and how far a rank's neighbours there are; sizes of the parts of what does not divide, and of
/// the parts of those that a rank communicates with; where a rank is along axes with panels of unequal sizes; and under
/// how many leaf switches its groups are. Who adds a bias that is whole or counts a row of the loss is a kernel's
/// operand or factor; who broadcasts a panel does it as often as others. On a ring that passes blocks on, a rank's
/// place, unless all links of the ring and all parts are alike.
/// @param graph all of the model, @param model what rank 0 has of it.
/// @param leaf_of_node by node of the job; empty: leaves make no difference.
RankClasses laid_out_classes(const Plan& plan, const ModelGraph& graph, const RankModel& model,
                             std::span<const int> leaf_of_node);

/// Ranks of which one needs more memory than any other: of those that hold parts of equal sizes one.
/// @param graph all of the model, @param model what rank 0 has of it.
std::vector<int> fullest_laid_out_ranks(const Plan& plan, const ModelGraph& graph, const RankModel& model);

}  // namespace strata
