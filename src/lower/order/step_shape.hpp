#pragma once

/// @file
/// A model that has been cut into stages → what schedules are made for.

#include <span>
#include <vector>

#include "ir/model/model_graph.hpp"
#include "ir/order/step_order.hpp"
#include "ir/plan/plan.hpp"
#include "lower/layouts/layout_collectives.hpp"
#include "partition/recomputation.hpp"
#include "partition/stages.hpp"

namespace strata {

/// Every stage is cut into its blocks, and what stands before the first of them, between two or behind the last; blocks
/// where they are recomputed in several regions; and all of it, where micro-batches have sub-batches, at the
/// collectives that change layouts.
/// @param collectives by operator of @p graph; empty: none is laid out.
StepShape step_shape(const Plan& plan, const ModelGraph& graph, std::span<const RecomputedRegion> regions,
                     std::span<const Stage> stages, const LayoutCollectives& collectives);

/// Of a model as a rank sees it, or of one that every rank has whole.
std::vector<RecomputedRegion> recomputed_regions(const ModelGraph& graph, std::span<const OperatorDecision> decisions,
                                                 const LayoutCollectives& collectives, std::span<const Stage> stages);

/// What recomputation does in the passes of one segment.
struct SegmentRecomputation {
  std::vector<int> forgotten{};   ///< tensors, behind its forward
  std::vector<int> runs_again{};  ///< operators, in forward order
};
/// By segment of @p shape, which was made of @p regions.
std::vector<SegmentRecomputation> recomputation_by_segment(const StepShape& shape,
                                                           std::span<const RecomputedRegion> regions);

}  // namespace strata
