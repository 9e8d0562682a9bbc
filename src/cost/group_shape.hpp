#pragma once

/// @file
/// Where the members of a group sit, as far as the time of a collective depends on it: ranks in a node × nodes.

#include <span>

#include "ir/plan.hpp"

namespace strata {

/// Of @p ranks when node n holds ranks [n · ranks_per_node, (n + 1) · ranks_per_node). Where nodes hold different
/// numbers of members, `in_node` is the largest.
Factor group_shape(std::span<const int> ranks, int ranks_per_node);

}  // namespace strata
