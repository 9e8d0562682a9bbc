#pragma once

/// @file
/// A plan's neighbours: the plans that decide one thing otherwise, by dimension. Which of them can be lowered, and what
/// they take, is somebody else's question.

#include <array>
#include <span>
#include <string>
#include <vector>

#include "planners/joint/dimension.hpp"
#include "planners/pipelines/degrees.hpp"
#include "planners/planner.hpp"

namespace strata {

struct Move {
  std::string words;  ///< what it decides, "recompute = block"
  Plan plan;
  /// It trades time for memory: of no use where the plan that it leaves fits.
  bool saves_only_memory = false;
};

/// Stages, stages a rank and micro-batches next to those of @p plan among @p all, more micro-batches instead of blocks
/// that run again, and the other order of one stage a rank, everything else as it is as far as can be. @param request
/// with options of degrees.
std::vector<Move> moves_of_stages(const PlanRequest& request, const Plan& plan, std::span<const ParallelDegrees> all);
/// Tensor degrees next to those of @p plan among @p all; of a plan with layouts also how sums come together, products
/// on rings, and a factor that goes from one of p0, p1 and p2 of one layer to another.
std::vector<Move> moves_of_tensor(const PlanRequest& request, const Plan& plan, std::span<const ParallelDegrees> all);
/// @p plan, which has layouts, with all products that may on rings in both directions.
Plan on_rings(const PlanRequest& request, const Plan& plan);
/// Of all operators, and of those that stand at one place of their blocks: what is sharded over how many of the ranks
/// that hold copies; how gradients come to who keeps a part of them.
/// Parameters at one place alone are sharded to save memory.
std::vector<Move> moves_of_states(const PlanRequest& request, const Plan& plan);
/// Of these the ones that are about all operators.
std::vector<Move> moves_of_all_states(const PlanRequest& request, const Plan& plan);
/// Of linears at one place of their blocks.
std::vector<Move> moves_of_slices(const PlanRequest& request, const Plan& plan);
/// Of all blocks, or of the first quarter, half and three quarters of them.
std::vector<Move> moves_of_recompute(const PlanRequest& request, const Plan& plan);
inline constexpr std::array ways_to_recompute = {Recompute::block, Recompute::after_communication,
                                                 Recompute::whole_block};
/// Of these the ones that do @p kind again, fewest blocks first.
std::vector<Move> moves_to_recompute(const PlanRequest& request, const Plan& plan, Recompute kind);
/// Some of its operators run again before backward.
bool runs_again(const Plan& plan);
/// @p plan whose first @p num_blocks blocks do @p kind again, and no others anything.
Plan with_recompute(const PlanRequest& request, const Plan& plan, Recompute kind, int num_blocks);
/// One to four that take turns, of plans with layouts, within passes and across them.
std::vector<Move> moves_of_sub_batches(const PlanRequest& request, const Plan& plan);
/// Every switch of what @p plan has, and buckets of a quarter and of four times the size.
std::vector<Move> moves_of_overlap(const PlanRequest& request, const Plan& plan);
/// Where it is known which nodes hang under one switch.
std::vector<Move> moves_of_placement(const PlanRequest& request, const Plan& plan);

/// The above by @p dimension.
std::vector<Move> moves_of(Dimension dimension, const PlanRequest& request, const Plan& plan,
                           std::span<const ParallelDegrees> all);

}  // namespace strata
