#pragma once

/// @file
/// Where the members of a group sit, as far as the time of a collective depends on it: ranks in a node × nodes.

#include <span>
#include <vector>

#include "ir/plan/plan.hpp"

namespace strata {

/// Where a collective happens.
struct Placement {
  Factor shape;                ///< ranks in a node × nodes
  std::vector<int> devices{};  ///< of the first member's node, in group order; empty: any, all alike
  int leaves = 0;              ///< switches that the members' nodes hang under; 0: as few as hold that many nodes
  bool operator==(const Placement&) const = default;
};

/// Of @p ranks when node n holds ranks [n · ranks_per_node, (n + 1) · ranks_per_node). Where nodes hold different
/// numbers of members, `in_node` is the largest.
Factor group_shape(std::span<const int> ranks, int ranks_per_node);

/// As above, with the devices. @param leaf_of_node by node of the job; empty: unknown.
Placement placement(std::span<const int> ranks, int ranks_per_node, std::span<const int> leaf_of_node = {});

}  // namespace strata
