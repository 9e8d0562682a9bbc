#pragma once

/// @file
/// Activation recomputation a block: the forward pass forgets what stands inside the block, and just before the block's
/// backward the operators whose outputs it reads run again. Random numbers are indexed by position, so every recomputed
/// bit is the same.

#include <functional>
#include <vector>

#include "ir/model/model_graph.hpp"

namespace strata {

/// Tensors produced in @p block that no operator outside reads.
std::vector<int> internal_tensors(const ModelGraph& graph, const Block& block);

/// Operators of @p block that must run again, in forward order, so that every tensor which the block's backward reads
/// is held.
std::vector<int> operators_to_recompute(const ModelGraph& graph, const Block& block,
                                        const std::function<bool(int tensor)>& is_held);
/// The same before anything is lowered: of a block whose forward pass has forgotten its internal tensors.
std::vector<int> operators_to_recompute(const ModelGraph& graph, const Block& block);

}  // namespace strata
