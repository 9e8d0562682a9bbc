#pragma once

/// @file
/// Which ranks of a plan do the same: their Programs are equal up to renaming of ranks, and their groups have the same
/// shape on the nodes. What is simulated, counted or printed for one holds for all of its class.

#include <vector>

#include "ir/plan.hpp"

namespace strata {

struct RankClasses {
  std::vector<int> class_of_rank;    ///< by world rank
  std::vector<int> representatives;  ///< by class: its lowest rank
};

/// Ranks are equal where they differ along the data axis alone. Shares of a tensor that the data ranks do not divide
/// differ by an element or are empty at the end; times are taken from the full tensor, so this separates nobody.
RankClasses rank_classes(const Plan& plan);

}  // namespace strata
