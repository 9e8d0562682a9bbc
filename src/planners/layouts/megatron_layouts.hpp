#pragma once

/// @file
/// Megatron's two degrees as layouts: data parallel dp = p0, and weights cut over tp ranks by columns (p1), then by
/// rows (p2), so that what is between the two needs no exchange. Embedding and logits are cut along the vocabulary.
/// Source: Shoeybi et al., "Megatron-LM", 2019, sec. 3; as S/B/P layouts AutoDDL sec. 4.

#include <span>
#include <vector>

#include "ir/plan/plan.hpp"
#include "planners/layouts/layers.hpp"

namespace strata {

/// By layer: rows where the layer before, on the same branch, is cut by columns; columns elsewhere. Layers that are not
/// searched are data parallel over all ranks.
std::vector<Layout> megatron_layouts(const LayerChain& chain, const Factor& grid, const Factor& tensor);
/// The same with degrees of their own. @param tensors by layer.
std::vector<Layout> megatron_layouts(const LayerChain& chain, const Factor& grid, std::span<const Factor> tensors);

}  // namespace strata
