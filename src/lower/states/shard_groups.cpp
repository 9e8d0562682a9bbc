#include "lower/states/shard_groups.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <utility>

namespace strata {

ShardGroups::ShardGroups(const Plan& plan, std::span<const ParameterShard> shards, const ReplicaGrids& grids,
                         std::span<const int> data, ProgramBuilder& builder) {
  constexpr Factor one{};
  // As its members stand in it: where nodes stand in another order on the grid, shards are another group's.
  std::map<std::vector<int>, int> known;
  for (const int g : data) {
    if (g >= 0) known[builder.group(g).ranks] = g;
  }
  std::vector<std::pair<int, StateFactors>> states;  // with the grid
  for (std::size_t p = 0; p < shards.size(); ++p) {
    const ParameterShard& shard = shards[p];
    const StateFactors& f = shard.factors;
    const int index = grids.index_of(p);
    const ReplicaGrid& grid = grids.of(p);
    // Equal factors are other ranks' on another grid.
    const int copies = data[static_cast<std::size_t>(index)];
    const std::string of_grid =
        grids.grids.size() > 1 && copies >= 0 ? builder.group(copies).name + ":" : std::string();
    const auto group = [&](const Factor& outer, const Factor& inner) {
      std::vector<int> ranks = grid.between(outer, inner);
      if (ranks.size() == 1) return -1;
      const auto [at, is_new] = known.try_emplace(ranks, -1);
      if (is_new) {
        at->second =
            builder.add_group({fmt::format("{}{}/{}", of_grid, to_string(outer), to_string(inner)), std::move(ranks)});
      }
      return at->second;
    };
    const std::size_t s = static_cast<std::size_t>(std::ranges::find(states, std::pair(index, f)) - states.begin());
    set_of_.push_back(static_cast<int>(s));
    if (s < states.size()) continue;
    states.emplace_back(index, f);
    Set set;
    if (!shard.is_sharded()) {
      set.replicas = set.owners = data[static_cast<std::size_t>(index)];
      sets_.push_back(set);
      continue;
    }
    const Factor all = grid.size();
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
    set.parameter_index = grid.index(f.p, one);
    set.num_spread = f.os.total() / f.p.total();
    set.spread_index = grid.index(f.os, f.p);
    if (f.p_backward && set.parameter >= 0) {
      set.has_secondary = true;
      set.secondary = group(*f.p_backward, one);
      set.num_secondary = f.p_backward->total();
      set.secondary_index = grid.index(*f.p_backward, one);
    }
    sets_.push_back(set);
  }
}

}  // namespace strata
