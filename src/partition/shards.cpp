#include "partition/shards.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <queue>
#include <string>
#include <tuple>
#include <utility>

#include "base/collective.hpp"
#include "base/error.hpp"
#include "partition/operator_splitting.hpp"

namespace strata {
namespace {

struct Place {
  int local;
  int node;
};
/// On the grid, where nodes stand as the mesh orders them.
Place place_of(const Mesh& mesh, int rank) {
  const int node = rank / mesh.ranks_per_node;
  const auto& order = mesh.node_order;
  const auto place = order.empty() ? node : std::ranges::find(order, node) - order.begin();
  return {rank % mesh.ranks_per_node, static_cast<int>(place)};
}
int node_at(const Mesh& mesh, int place) {
  return mesh.node_order.empty() ? place : mesh.node_order[static_cast<std::size_t>(place)];
}

Piece piece_of(std::int64_t num_elements, int num_ranks, int index) {
  const Chunk chunk = chunk_of(num_elements, num_ranks, index);
  return {chunk.begin, chunk.size()};
}

void check_nested(const Plan& plan, const Operator& op, const StateFactors& state, const ReplicaGrid& grid) {
  const auto refuse = [&](const std::string& what) {
    throw Unsupported(fmt::format("plan `{}`: {}: state {} cannot be lowered", plan.strategy, op.name, what));
  };
  const auto check = [&](const char* inner_name, const Factor& inner, const char* outer_name, const Factor& outer) {
    if (!divides(inner, outer)) {
      refuse(fmt::format("{} = {}, which does not divide {} = {} in both dimensions,", inner_name, to_string(inner),
                         outer_name, to_string(outer)));
    }
  };
  check("p", state.p, "g", state.g);
  check("g", state.g, "os", state.os);
  if (state.os.total() > 1) check("os", state.os, "the data ranks'", grid.size());
  if (state.p_backward) check("p_backward", *state.p_backward, "p", state.p);
  if (state.g != state.p && state.g != state.os) {
    refuse(fmt::format("g = {}, neither p = {} nor os = {},", to_string(state.g), to_string(state.p),
                       to_string(state.os)));
  }
}

/// Owner by parameter: see shards_of(). Parameters of equal factors on one grid are dealt together.
std::vector<int> owners_of(const ModelGraph& graph, std::span<const ParameterShard> shards, const ReplicaGrids& grids) {
  std::map<std::tuple<int, int, int>, std::vector<std::size_t>> dealt_together;  // by grid and (p, os) ranks
  for (std::size_t p = 0; p < shards.size(); ++p) {
    const StateFactors& f = shards[p].factors;
    dealt_together[{grids.index_of(p), f.p.total(), f.os.total()}].push_back(p);
  }
  std::vector<int> owners(shards.size(), 0);
  for (const auto& [shared_by, parameters] : dealt_together) {
    const auto [grid, num_parameter, num_optimizer] = shared_by;
    std::vector<std::int64_t> sizes;
    for (const std::size_t p : parameters) sizes.push_back(graph.parameters[p].num_elements());
    const std::vector<int> dealt = deal_largest_first(sizes, num_optimizer / num_parameter);
    for (std::size_t i = 0; i < parameters.size(); ++i) owners[parameters[i]] = dealt[i];
  }
  return owners;
}

}  // namespace

std::vector<int> ranks_between(const Mesh& mesh, const Factor& outer, const Factor& inner, int rank) {
  const Place at = place_of(mesh, rank);
  const int first_local = at.local / outer.in_node * outer.in_node + at.local % inner.in_node;
  const int first_node = at.node / outer.nodes * outer.nodes + at.node % inner.nodes;
  std::vector<int> ranks;
  for (int n = 0; n < outer.nodes / inner.nodes; ++n) {
    for (int l = 0; l < outer.in_node / inner.in_node; ++l) {
      ranks.push_back(node_at(mesh, first_node + n * inner.nodes) * mesh.ranks_per_node + first_local +
                      l * inner.in_node);
    }
  }
  return ranks;
}

int index_between(const Mesh& mesh, const Factor& outer, const Factor& inner, int rank) {
  const Place at = place_of(mesh, rank);
  const int local = at.local % outer.in_node / inner.in_node;
  const int node = at.node % outer.nodes / inner.nodes;
  return node * (outer.in_node / inner.in_node) + local;
}

std::vector<int> places_on_grid(const Mesh& mesh) {
  std::vector<int> places(static_cast<std::size_t>(mesh.num_ranks()));
  for (int n = 0; n < mesh.nodes; ++n) {
    for (int l = 0; l < mesh.ranks_per_node; ++l) {
      const int rank = node_at(mesh, n) * mesh.ranks_per_node + l;
      places[static_cast<std::size_t>(rank)] = n * mesh.ranks_per_node + l;
    }
  }
  return places;
}

Factor whole_grid(const Mesh& mesh) { return {mesh.ranks_per_node, mesh.nodes}; }

Factor data_grid(const Mesh& mesh) {
  const int size = axis_size(mesh, "data");
  // Before a planner has named axes every rank is a data rank.
  if (has_layouts(mesh)) return whole_grid(mesh_of_stage(mesh));
  if (mesh.axes.empty() || size == mesh.num_ranks()) return whole_grid(mesh);
  const int in_node = mesh.ranks_per_node;
  const Factor grid = size <= in_node ? Factor{size, 1} : Factor{in_node, size / in_node};
  if (size > 1 && axis_stride(mesh, "data") != 1) {
    throw Unsupported(fmt::format("states over {} data ranks of {} × {}, which are not neighbours, cannot be sharded",
                                  size, mesh.nodes, in_node));
  }
  if (grid.total() != size || !divides(grid, whole_grid(mesh))) {
    throw Unsupported(
        fmt::format("states over {} data ranks cannot be sharded: they are no whole nodes, nor an even part of one, of "
                    "{} × {} ranks",
                    size, mesh.nodes, in_node));
  }
  return grid;
}

std::int64_t optimizer_bytes_per_element(const Plan& plan) {
  const std::int64_t master = plan.dtypes.compute == DType::f32 ? 0 : 1;  // f32 weights are their own masters
  return size_of(DType::f32) * (num_moments(plan.optimizer) + master);
}

std::vector<int> deal_largest_first(std::span<const std::int64_t> sizes, int num_owners) {
  std::vector<std::size_t> largest_first(sizes.size());
  std::iota(largest_first.begin(), largest_first.end(), std::size_t{0});
  std::ranges::stable_sort(largest_first, std::ranges::greater{}, [&](std::size_t i) { return sizes[i]; });
  using Load = std::pair<std::int64_t, int>;  // the least on top; of equals the first owner
  std::priority_queue<Load, std::vector<Load>, std::greater<>> loads;
  for (int owner = 0; owner < num_owners; ++owner) loads.emplace(0, owner);
  std::vector<int> owners(sizes.size());
  for (const std::size_t i : largest_first) {
    const auto [load, owner] = loads.top();
    loads.pop();
    owners[i] = owner;
    loads.emplace(load + sizes[i], owner);
  }
  return owners;
}

bool divides(const Factor& inner, const Factor& outer) {
  return outer.in_node % inner.in_node == 0 && outer.nodes % inner.nodes == 0;
}

std::vector<int> ReplicaGrid::between(const Factor& outer, const Factor& inner) const {
  std::vector<int> places = ranks_between(mesh, outer, inner, place);
  if (!ranks.empty()) {
    for (int& at : places) at = ranks[static_cast<std::size_t>(at)];
  }
  return places;
}

ReplicaGrids whole_grids(const Mesh& mesh, int rank) {
  return {.grids = {{.mesh = mesh, .ranks = {}, .place = rank}}, .of_parameter = {}};
}

ParameterShard shard_of(const Plan& plan, std::int64_t num_elements, const StateFactors& factors, int owner,
                        const Mesh& mesh, int place) {
  ParameterShard shard;
  shard.factors = factors;
  shard.owner = owner;
  shard.held = piece_of(num_elements, factors.p.total(), index_between(mesh, factors.p, {}, place));
  const int index = index_between(mesh, factors.os, factors.p, place);
  if (plan.optimizer.sharding == "inter_tensor") {
    shard.updated = {0, index == owner ? shard.held.size : 0};
  } else {
    shard.updated = piece_of(shard.held.size, factors.os.total() / factors.p.total(), index);
  }
  return shard;
}

std::vector<ParameterShard> shards_of(const Plan& plan, const ModelGraph& graph,
                                      std::span<const OperatorDecision> decisions, int rank) {
  return shards_of(plan, graph, decisions, whole_grids(plan.mesh, rank));
}

std::vector<ParameterShard> shards_of(const Plan& plan, const ModelGraph& graph,
                                      std::span<const OperatorDecision> decisions, const ReplicaGrids& grids) {
  std::vector<ParameterShard> shards(graph.parameters.size());
  for (std::size_t o = 0; o < graph.operators.size(); ++o) {
    for (const int p : graph.operators[o].parameters) {
      const StateFactors state = state_of(plan.mesh, decisions[o], graph.parameters[static_cast<std::size_t>(p)]);
      check_nested(plan, graph.operators[o], state, grids.of(static_cast<std::size_t>(p)));
      shards[static_cast<std::size_t>(p)].factors = state;
    }
  }
  const bool inter_tensor = plan.optimizer.sharding == "inter_tensor";
  const std::vector<int> owners = inter_tensor ? owners_of(graph, shards, grids) : std::vector<int>(shards.size(), 0);
  for (std::size_t p = 0; p < shards.size(); ++p) {
    const ReplicaGrid& grid = grids.of(p);
    shards[p] = shard_of(plan, graph.parameters[p].num_elements(), shards[p].factors, owners[p], grid.mesh, grid.place);
  }
  return shards;
}

}  // namespace strata
