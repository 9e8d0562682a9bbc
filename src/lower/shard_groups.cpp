#include "lower/shard_groups.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace strata {

ShardGroups::ShardGroups(const Plan& plan, std::span<const ParameterShard> shards, int rank, int data,
                         ProgramBuilder& builder) {
  const Mesh& mesh = plan.mesh;
  const Factor all = std::ranges::any_of(shards, &ParameterShard::is_sharded) ? data_grid(mesh) : Factor{};
  constexpr Factor one{};
  std::map<std::vector<int>, int> known;
  // As its members stand in it: where nodes stand in another order on the grid, shards are another group's.
  if (data >= 0) known[group_along(mesh, "data", rank)] = data;
  const auto group = [&](const Factor& outer, const Factor& inner) {
    std::vector<int> ranks = ranks_between(mesh, outer, inner, rank);
    if (ranks.size() == 1) return -1;
    const auto [at, is_new] = known.try_emplace(ranks, -1);
    if (is_new) {
      at->second = builder.add_group({fmt::format("{}/{}", to_string(outer), to_string(inner)), std::move(ranks)});
    }
    return at->second;
  };
  std::vector<StateFactors> states;
  for (const ParameterShard& shard : shards) {
    const StateFactors& f = shard.factors;
    std::size_t s = 0;
    while (s < states.size() && states[s] != f) ++s;
    set_of_.push_back(static_cast<int>(s));
    if (s < states.size()) continue;
    states.push_back(f);
    Set set;
    if (!shard.is_sharded()) {
      set.replicas = set.owners = data;
      sets_.push_back(set);
      continue;
    }
    set.parameter = group(f.p, one);
    if (plan.quantization.gradients != "none") {
      set.on_node = group({f.p.in_node, 1}, one);
      set.across_nodes = group(f.p, {f.p.in_node, 1});
    }
    set.spread = group(f.os, f.p);
    set.replicas = group(all, f.p);
    set.owners = group(all, f.os);
    set.optimizer = group(f.os, one);
    set.num_parameter = f.p.total();
    set.parameter_index = index_between(mesh, f.p, one, rank);
    set.num_spread = f.os.total() / f.p.total();
    set.spread_index = index_between(mesh, f.os, f.p, rank);
    if (f.p_backward && set.parameter >= 0) {
      set.has_secondary = true;
      set.secondary = group(*f.p_backward, one);
      set.num_secondary = f.p_backward->total();
      set.secondary_index = index_between(mesh, *f.p_backward, one, rank);
    }
    sets_.push_back(set);
  }
}

}  // namespace strata
