#pragma once

/// @file
/// Tensor degrees a transformer layer, as Oases plans them, and how an option says them.

#include <string>
#include <vector>

#include "ir/plan/plan.hpp"
#include "planners/layouts/layers.hpp"

namespace strata {

/// "2*8+4*16": degree 2 in the first eight layers and 4 in the next sixteen, as the paper's table 6 writes it; "*1" may
/// be left out. @throws UserError naming strategy.degrees and what is accepted.
std::vector<int> parse_degrees(const std::string& text);
/// Neighbours of one degree joined.
std::string degrees_text(const std::vector<int>& degrees);

/// @p degree ranks on @p grid that are as near to each other as can be: those of a node first, which links inside nodes
/// join in pairs of neighbours, then whole nodes. @throws Unsupported where the grid does not divide so.
Factor nearest_ranks(const Factor& grid, int degree);

/// By layer of @p chain, of degrees by block of the model. What stands before the first block has its degree, what
/// stands behind the last has that one's; a weight that is used twice has that of its first use.
/// @throws Unsupported with both numbers where there are more or fewer degrees than blocks.
std::vector<Factor> tensor_of_layers(const LayerChain& chain, const Factor& grid, const std::vector<int>& degrees);

}  // namespace strata
