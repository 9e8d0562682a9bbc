#include "lower/rank_classes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>

namespace strata {
namespace {

/// What tells a rank's class from others: its coordinates off the data axis, how many members of its data group its own
/// and the other nodes hold, and how far away, in nodes, its neighbours on the other axes are.
std::string signature(const Plan& plan, int rank) {
  const Mesh& mesh = plan.mesh;
  const auto node = [&](int r) { return r / mesh.ranks_per_node; };
  std::string text;
  for (const MeshAxis& axis : mesh.axes) {
    if (axis.size == 1) continue;
    const std::vector<int> group = group_along(mesh, axis.name, rank);
    if (axis.name != "data") {
      text += fmt::format("{}={}", axis.name, coordinate(mesh, axis.name, rank));
      for (const int member : group) text += fmt::format(",{}", node(member) - node(rank));
    } else {
      std::map<int, int> members;
      for (const int member : group) ++members[node(member)];
      std::vector<int> sizes;
      for (const auto& [_, size] : members) sizes.push_back(size);
      std::ranges::sort(sizes);
      text += axis.name;
      for (const int size : sizes) text += fmt::format(",{}", size);
    }
    text += ';';
  }
  return text;
}

}  // namespace

RankClasses rank_classes(const Plan& plan) {
  RankClasses classes;
  std::map<std::string, int> known;
  for (int rank = 0; rank < plan.mesh.num_ranks(); ++rank) {
    const auto [found, is_new] =
        known.try_emplace(signature(plan, rank), static_cast<int>(classes.representatives.size()));
    if (is_new) classes.representatives.push_back(rank);
    classes.class_of_rank.push_back(found->second);
  }
  return classes;
}

}  // namespace strata
