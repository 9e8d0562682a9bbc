#include "lower/rank_classes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>
#include <string>

#include "base/collective.hpp"
#include "ir/operator_splitting.hpp"
#include "ir/shards.hpp"

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

/// Sizes of all shards of a rank.
std::string shard_sizes(const Plan& plan, const ModelGraph& graph, std::span<const OperatorDecision> decisions,
                        int rank) {
  std::string text;
  const std::vector<ParameterShard> shards = shards_of(plan, graph, decisions, rank);
  for (std::size_t p = 0; p < shards.size(); ++p) {
    const ParameterShard& shard = shards[p];
    text += fmt::format("{}/{}", shard.held.size, shard.updated.size);
    if (const auto& second = shard.factors.p_backward) {
      text += fmt::format("/{}", chunk_of(graph.parameters[p].num_elements(), second->total(),
                                          index_between(plan.mesh, *second, {}, rank))
                                     .size());
    }
    text += ',';
  }
  return text;
}

}  // namespace

RankClasses rank_classes(const Plan& plan, const ModelGraph& graph) {
  const SplitModel split = split_operators(plan, graph, resolve(plan, graph));
  const bool has_shards =
      std::ranges::any_of(split.decisions, [&](const OperatorDecision& d) { return is_sharded(plan.mesh, d); });
  RankClasses classes;
  std::map<std::string, int> known;
  for (int rank = 0; rank < plan.mesh.num_ranks(); ++rank) {
    const auto [found, is_new] = known.try_emplace(
        signature(plan, rank) + (has_shards ? shard_sizes(plan, split.graph, split.decisions, rank) : ""),
        static_cast<int>(classes.representatives.size()));
    if (is_new) classes.representatives.push_back(rank);
    classes.class_of_rank.push_back(found->second);
  }
  return classes;
}

}  // namespace strata
