#pragma once

/// @file
/// The degrees of data, tensor and pipeline parallelism together: which there are on a mesh, and what plan each is.
/// Stages are neighbouring ranks, and of these the ranks that share a weight: as many as a node has first, so that
/// pairs with links of their own share before others do.

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ir/plan/plan.hpp"
#include "planners/planner.hpp"

namespace strata {

struct ParallelDegrees {
  int places = 1;                          ///< of the pipeline, each of equally many ranks
  int chunks = 1;                          ///< stages a place; several are interleaved
  int tensor = 1;                          ///< ranks that share a weight
  PartialSums sum = PartialSums::scatter;  ///< of products that such ranks share; of one rank there are none
  int micro_batches = 1;
  auto operator<=>(const ParallelDegrees&) const = default;
  int stages() const { return places * chunks; }
  int data(int num_ranks) const { return num_ranks / places / tensor; }
};

/// "data 4 × tensor 2 (all_reduce) × stage 8 (2 a rank), 16 micro-batches".
std::string in_words(const ParallelDegrees& degrees, int num_ranks);

/// stages, chunks, tensor, sum, micro_batches and cut_by.
std::span<const OptionRow> degree_options();

/// Slices of a weight would be cut along the dim that tensor ranks share, and nothing lowers them beside layouts.
/// @throws Unsupported with the numbers where @p request asks for more than one slice, by an option of its mode, and
/// @p degrees has tensor ranks.
void refuse_slices(const PlanRequest& request, const ParallelDegrees& degrees);

/// Of @p request with options stages, chunks and tensor (0: open), sum and micro_batches (planner: open) every
/// combination that these leave open, in ascending order, whether or not it can be. Tensor ranks are searched inside a
/// node where nodes have several ranks; micro-batches of which all data ranks have equally many samples.
/// @throws Unsupported for stages that are none of so many chunks.
std::vector<ParallelDegrees> asked_degrees(const PlanRequest& request);

/// 1f1b, or of several stages a place interleaved. Of one tensor rank a plan with the axes stage and data, of several
/// with megatron's layouts.
/// @throws Unsupported with the numbers: stages that outnumber the blocks, places that divide no ranks or are neither
/// whole nodes nor an even part of one, tensor ranks that are above what they cut or do not divide a place,
/// micro-batches that do not divide the batch, or are no multiple of the places of interleaved stages; slices beside
/// tensor ranks (refuse_slices()).
Plan plan_of_degrees(const PlanRequest& request, const ParallelDegrees& degrees);

/// What a place of @p degrees, which can be, does with @p part of the model alone, without stages and with
/// @p micro_batches of as many samples as in the whole plan.
Plan plan_of_place(const PlanRequest& request, const ModelGraph& part, const ParallelDegrees& degrees,
                   int micro_batches);

}  // namespace strata
