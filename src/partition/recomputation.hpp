#pragma once

/// @file
/// Activation recomputation: the forward pass forgets what stands inside a region of the graph, and before the region's
/// backward the operators whose outputs it reads run again. Random numbers are indexed by position, so every recomputed
/// bit is the same.
///
/// A region is neighbouring operators of one block and stage that are recomputed alike: the block (Chen et al., 2016),
/// or, after communication, what stands between two collectives that change layouts (Oases, sec. 3.2). What an operator
/// beyond its end reads, such as a collective's output and the residual stream, is kept: nothing is communicated again.

#include <span>
#include <vector>

#include "ir/model/model_graph.hpp"
#include "ir/plan/plan.hpp"
#include "partition/stages.hpp"

namespace strata {

/// What recomputation does in one region.
struct RecomputedRegion {
  int first_operator = 0;
  int num_operators = 0;
  std::vector<int> forgotten{};  ///< tensors that are made in the region and read by no operator outside, ascending
  std::vector<int>
      runs_again{};  ///< operators, in forward order, so that all that the region's backward reads is there
  int end() const { return first_operator + num_operators; }
  /// Of the operators that run again those in [first, end).
  std::span<const int> runs_again_in(int first, int end) const;
};

/// In the order of @p graph.
/// @param kinds by operator.
/// @param communicates by operator: a collective that changes layouts ends its forward, or stands in it; empty: of
/// none.
/// @param stages that the model is cut into, which may begin in the middle of a block; empty: it is not cut.
std::vector<RecomputedRegion> recomputed_regions(const ModelGraph& graph, std::span<const Recompute> kinds,
                                                 const std::vector<bool>& communicates,
                                                 std::span<const Stage> stages = {});

}  // namespace strata
