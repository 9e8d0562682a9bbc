#include "lower/shards.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "base/collective.hpp"
#include "base/error.hpp"

namespace strata {
namespace {

struct Place {
  int local;
  int node;
};
Place place_of(const Mesh& mesh, int rank) { return {rank % mesh.ranks_per_node, rank / mesh.ranks_per_node}; }

Piece piece_of(std::int64_t num_elements, int num_ranks, int index) {
  const Chunk chunk = chunk_of(num_elements, num_ranks, index);
  return {chunk.begin, chunk.size()};
}

void check_nested(const Plan& plan, const Operator& op, const StateFactors& state) {
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
  check("os", state.os, "the grid", whole_grid(plan.mesh));
  if (state.p_backward) check("p_backward", *state.p_backward, "p", state.p);
  if (state.g != state.p && state.g != state.os) {
    refuse(fmt::format("g = {}, neither p = {} nor os = {},", to_string(state.g), to_string(state.p),
                       to_string(state.os)));
  }
}

/// Owner by parameter: see shards_of(). Parameters of equal factors are dealt together.
std::vector<int> deal(const ModelGraph& graph, std::span<const ParameterShard> shards) {
  std::vector<int> largest_first(graph.parameters.size());
  std::iota(largest_first.begin(), largest_first.end(), 0);
  const auto size = [&](int p) { return graph.parameters[static_cast<std::size_t>(p)].num_elements(); };
  std::ranges::stable_sort(largest_first, std::ranges::greater{}, size);
  std::map<std::pair<int, int>, std::vector<std::int64_t>> filled;  // by (p, os) ranks: elements by owner
  std::vector<int> owners(shards.size(), 0);
  for (const int p : largest_first) {
    const StateFactors& f = shards[static_cast<std::size_t>(p)].factors;
    auto& loads = filled[{f.p.total(), f.os.total()}];
    loads.resize(static_cast<std::size_t>(f.os.total() / f.p.total()));
    const auto least = std::ranges::min_element(loads);
    *least += size(p);
    owners[static_cast<std::size_t>(p)] = static_cast<int>(least - loads.begin());
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
      ranks.push_back((first_node + n * inner.nodes) * mesh.ranks_per_node + first_local + l * inner.in_node);
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

Factor whole_grid(const Mesh& mesh) { return {mesh.ranks_per_node, mesh.nodes}; }

bool divides(const Factor& inner, const Factor& outer) {
  return outer.in_node % inner.in_node == 0 && outer.nodes % inner.nodes == 0;
}

std::vector<ParameterShard> shards_of(const Plan& plan, const ModelGraph& graph,
                                      std::span<const OperatorDecision> decisions, int rank) {
  std::vector<ParameterShard> shards(graph.parameters.size());
  for (std::size_t o = 0; o < graph.operators.size(); ++o) {
    for (const int p : graph.operators[o].parameters) {
      check_nested(plan, graph.operators[o], decisions[o].state);
      shards[static_cast<std::size_t>(p)].factors = decisions[o].state;
    }
  }
  constexpr Factor one{};
  const bool inter_tensor = plan.optimizer.sharding == "inter_tensor";
  const std::vector<int> owners = inter_tensor ? deal(graph, shards) : std::vector<int>(shards.size(), 0);
  for (std::size_t p = 0; p < shards.size(); ++p) {
    ParameterShard& shard = shards[p];
    const StateFactors& f = shard.factors;
    const Mesh& mesh = plan.mesh;
    shard.held = piece_of(graph.parameters[p].num_elements(), f.p.total(), index_between(mesh, f.p, one, rank));
    const int index = index_between(mesh, f.os, f.p, rank);
    if (inter_tensor) {
      shard.owner = owners[p];
      shard.updated = {0, index == shard.owner ? shard.held.size : 0};
    } else {
      shard.updated = piece_of(shard.held.size, f.os.total() / f.p.total(), index);
    }
  }
  return shards;
}

}  // namespace strata
