#include "cost/group_shape.hpp"

#include <algorithm>
#include <map>

namespace strata {

Factor group_shape(std::span<const int> ranks, int ranks_per_node) {
  std::map<int, int> members;
  for (const int rank : ranks) ++members[rank / ranks_per_node];
  Factor shape{.in_node = 1, .nodes = static_cast<int>(members.size())};
  for (const auto& [node, count] : members) shape.in_node = std::max(shape.in_node, count);
  return shape;
}

}  // namespace strata
