#include "cost/group_shape.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace strata {

Factor group_shape(std::span<const int> ranks, int ranks_per_node) {
  std::map<int, int> members;
  for (const int rank : ranks) ++members[rank / ranks_per_node];
  Factor shape{.in_node = 1, .nodes = static_cast<int>(members.size())};
  for (const auto& [node, count] : members) shape.in_node = std::max(shape.in_node, count);
  return shape;
}

Placement placement(std::span<const int> ranks, int ranks_per_node, std::span<const int> leaf_of_node) {
  Placement place{.shape = group_shape(ranks, ranks_per_node)};
  for (const int rank : ranks) {
    if (rank / ranks_per_node == ranks.front() / ranks_per_node) place.devices.push_back(rank % ranks_per_node);
  }
  std::set<int> leaves;
  for (const int rank : ranks) {
    if (!leaf_of_node.empty()) leaves.insert(leaf_of_node[static_cast<std::size_t>(rank / ranks_per_node)]);
  }
  place.leaves = static_cast<int>(leaves.size());
  return place;
}

}  // namespace strata
