#pragma once

/// @file
/// The cheapest strategy, exactly, by dynamic programming over layers: one variable after another is replaced by what
/// its best choice costs for every choice of its neighbours. A chain has one neighbour at its end; a residual around a
/// layer gives it two. With n choices a layer that is n² or n³ additions, not n^layers; layers with equal numbers are
/// worked out once. Where each layer meets three or more others (a head tied to the embedding closes a ring around
/// residuals) one of them is given its choices in turn.
///
/// Source: Bellman's principle; the paper searches by heuristics instead (AutoDDL sec. 4.6).

#include "planners/layouts/layout_problem.hpp"

namespace strata {

/// Whatever the capacity. @return choices; empty: every strategy costs infinity.
std::vector<int> cheapest(const LayoutProblem& problem);

}  // namespace strata
