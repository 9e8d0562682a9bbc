#pragma once

/// @file
/// Activation recomputation a block: the forward pass forgets what stands inside the block, and just before the block's
/// backward the operators whose outputs it reads run again. Random numbers are indexed by position, so every recomputed
/// bit is the same.

#include <vector>

#include "ir/model/model_graph.hpp"

namespace strata {

/// What recomputation does in one block.
struct RecomputedBlock {
  std::vector<int> forgotten;   ///< tensors that are made in the block and read by no operator outside, ascending
  std::vector<int> runs_again;  ///< operators, in forward order, so that all that the block's backward reads is there
};

/// By block of @p graph.
std::vector<RecomputedBlock> recomputed_blocks(const ModelGraph& graph);

}  // namespace strata
