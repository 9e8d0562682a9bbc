#include "lower/rank_classes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "base/collective.hpp"
#include "ir/operator_splitting.hpp"
#include "ir/program.hpp"
#include "ir/shards.hpp"
#include "lower/laid_out_graph.hpp"

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

/// Under how many leaf switches the members of each of a rank's groups are: one number for every factor that states
/// have, and for what lies between two.
std::string leaves(const Plan& plan, std::span<const StateFactors> states, std::span<const int> leaf_of_node,
                   int rank) {
  const Factor all = data_grid(plan.mesh);
  constexpr Factor one{};
  std::string text;
  const auto count = [&](const Factor& outer, const Factor& inner) {
    std::set<int> found;
    for (const int member : ranks_between(plan.mesh, outer, inner, rank)) {
      found.insert(leaf_of_node[static_cast<std::size_t>(member / plan.mesh.ranks_per_node)]);
    }
    text += fmt::format("{}|", found.size());
  };
  for (const StateFactors& s : states) {
    count(s.p, one);
    count(s.p, {s.p.in_node, 1});
    count(s.os, s.p);
    count(s.os, one);
    count(all, s.p);
    count(all, s.os);
    if (s.p_backward) count(*s.p_backward, one);
  }
  return text;
}

/// Which of a rank's neighbours off the data axis hang under its own leaf switch: what it sends them crosses the spine
/// or does not.
std::string leaves_of_neighbours(const Mesh& mesh, std::span<const int> leaf_of_node, int rank) {
  const auto leaf = [&](int r) { return leaf_of_node[static_cast<std::size_t>(r / mesh.ranks_per_node)]; };
  std::string text;
  for (const MeshAxis& axis : mesh.axes) {
    if (axis.name == "data" || axis.size == 1) continue;
    for (const int member : group_along(mesh, axis.name, rank)) text += leaf(member) == leaf(rank) ? '=' : '!';
  }
  return text;
}

std::vector<StateFactors> different_states(const Mesh& mesh, const SplitModel& split) {
  std::vector<StateFactors> states;
  for (std::size_t o = 0; o < split.decisions.size(); ++o) {
    for (const int p : split.graph.operators[o].parameters) {
      const StateFactors state =
          state_of(mesh, split.decisions[o], split.graph.parameters[static_cast<std::size_t>(p)]);
      if (std::ranges::find(states, state) == states.end()) states.push_back(state);
    }
  }
  return states;
}

/// Parameters in the order in which backward completes their gradients: that of the first operator that uses each.
std::vector<std::size_t> in_backward_order(const ModelGraph& graph) {
  std::vector<std::size_t> first_use(graph.parameters.size(), graph.operators.size());
  for (std::size_t o = graph.operators.size(); o-- > 0;) {
    for (const int p : graph.operators[o].parameters) first_use[static_cast<std::size_t>(p)] = o;
  }
  std::vector<std::size_t> order(graph.parameters.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater{}, [&](std::size_t p) { return first_use[p]; });
  return order;
}

std::int64_t in_arena(std::int64_t bytes) {
  return (bytes + arena_alignment_bytes - 1) / arena_alignment_bytes * arena_alignment_bytes;
}

/// Bytes that a rank holds in its own way: of states that stay, then with the gradients of the first, the first two, …
/// parameters in @p order.
std::vector<std::int64_t> own_bytes(const Plan& plan, const ModelGraph& graph,
                                    std::span<const OperatorDecision> decisions, std::span<const std::size_t> order,
                                    int rank) {
  const std::vector<ParameterShard> shards = shards_of(plan, graph, decisions, rank);
  const bool is_mixed = plan.dtypes.compute != DType::f32;
  const std::int64_t num_f32 = num_moments(plan.optimizer) + (is_mixed ? 1 : 0);
  std::vector<std::int64_t> bytes(1, 0);
  for (std::size_t p = 0; p < shards.size(); ++p) {
    const ParameterShard& shard = shards[p];
    bytes[0] += in_arena(shard.held.size * size_of(plan.dtypes.compute)) +
                num_f32 * in_arena(shard.updated.size * size_of(DType::f32));
    if (const auto& second = shard.factors.p_backward) {
      const int index = index_between(plan.mesh, *second, {}, rank);
      bytes[0] +=
          chunk_of(graph.parameters[p].num_elements(), second->total(), index).size() * size_of(plan.dtypes.compute);
    }
  }
  for (const std::size_t p : order) {
    const ParameterShard& shard = shards[p];
    const bool keeps_part = shard.factors.g != shard.factors.p || plan.optimizer.gradients == "reduce_scatter";
    bytes.push_back(bytes.back() + (keeps_part ? shard.updated : shard.held).size * size_of(plan.dtypes.gradient));
  }
  return bytes;
}

std::vector<int> coordinates_off_data(const Mesh& mesh, int rank) {
  std::vector<int> coordinates;
  for (const MeshAxis& axis : mesh.axes) {
    if (axis.name != "data") coordinates.push_back(coordinate(mesh, axis.name, rank));
  }
  return coordinates;
}

/// Axes along which ranks that share a parameter hold shards of different sizes.
AxisSet uneven_axes(const Plan& plan, const LaidOutGraph& model) {
  AxisSet axes = 0;
  const bool is_dealt = plan.optimizer.sharding == "inter_tensor";
  const std::vector<ParameterShard> shards = shards_of(plan, model.graph, model.decisions, grids_of(plan, model, 0));
  for (std::size_t p = 0; p < shards.size(); ++p) {
    const bool divides = model.graph.parameters[p].num_elements() % shards[p].factors.os.total() == 0;
    if (shards[p].is_sharded() && (is_dealt || !divides)) axes |= model.replicas[p];
  }
  return axes;
}

/// What tells a rank's class from others where operators are laid out: where it is along @p uneven, and under how many
/// leaf switches its groups are. Who adds a bias or counts a row of the loss is a kernel's operand or factor; who
/// broadcasts a panel does it as often as others. Besides, its stage, and how far its neighbours are.
/// @param communicating see communicating_axes().
std::string signature(const Plan& plan, const std::set<AxisSet>& communicating, AxisSet uneven,
                      std::span<const int> leaf_of_node, int rank) {
  const AtomicAxes axes(plan.mesh);
  std::string text = fmt::format("{}", axes.index(uneven, rank));
  if (plan.stages.count > 1) text += signature(plan, rank);
  if (leaf_of_node.empty()) return text;
  // Ranks at one place of all stages are told apart together: a message goes from one class to one class.
  for (const int neighbour : group_along(plan.mesh, "stage", rank)) {
    text += leaves_of_neighbours(plan.mesh, leaf_of_node, neighbour);
    for (const AxisSet set : communicating) {
      std::set<int> leaves;
      for (const int member : axes.group(set, neighbour)) {
        leaves.insert(leaf_of_node[static_cast<std::size_t>(member / plan.mesh.ranks_per_node)]);
      }
      text += fmt::format("|{}", leaves.size());
    }
  }
  return text;
}

RankClasses classes_of(int num_ranks, const std::function<std::string(int)>& signature_of) {
  RankClasses classes;
  std::map<std::string, int> known;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const auto [found, is_new] =
        known.try_emplace(signature_of(rank), static_cast<int>(classes.representatives.size()));
    if (is_new) classes.representatives.push_back(rank);
    classes.class_of_rank.push_back(found->second);
  }
  return classes;
}

}  // namespace

std::vector<int> fullest_ranks(const Plan& plan, const ModelGraph& graph) {
  if (has_layouts(plan.mesh)) return rank_classes(plan, graph).representatives;
  const SplitModel split = split_operators(plan, graph, resolve(plan, graph));
  const std::vector<std::size_t> order = in_backward_order(split.graph);
  const std::vector<StateFactors> states = different_states(plan.mesh, split);
  struct Most {
    std::int64_t bytes = -1;
    int rank = 0;
  };
  std::map<std::vector<int>, std::vector<Most>> by_place;  // by moment
  std::set<std::vector<int>> seen;
  for (int rank = 0; rank < plan.mesh.num_ranks(); ++rank) {
    const std::vector<int> place = coordinates_off_data(plan.mesh, rank);
    std::vector<int> shards = place;
    for (const StateFactors& state : states) {
      shards.push_back(index_between(plan.mesh, state.p, {}, rank));
      shards.push_back(index_between(plan.mesh, state.os, state.p, rank));
      if (state.p_backward) shards.push_back(index_between(plan.mesh, *state.p_backward, {}, rank));
    }
    if (!seen.insert(std::move(shards)).second) continue;  // an earlier rank holds the same
    std::vector<Most>& most = by_place[place];
    const std::vector<std::int64_t> bytes = own_bytes(plan, split.graph, split.decisions, order, rank);
    most.resize(bytes.size());
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (bytes[i] > most[i].bytes) most[i] = {bytes[i], rank};
    }
  }
  std::set<int> ranks;
  for (const auto& [_, most] : by_place) {
    for (const Most& m : most) ranks.insert(m.rank);
  }
  return {ranks.begin(), ranks.end()};
}

RankClasses rank_classes(const Plan& plan, const ModelGraph& graph, std::span<const int> leaf_of_node) {
  if (has_layouts(plan.mesh)) {
    const LaidOutGraph model = lay_out(plan, graph, resolve(plan, graph), 0);
    const AxisSet uneven = uneven_axes(plan, model);
    const std::set<AxisSet> communicating = communicating_axes(model);
    return classes_of(plan.mesh.num_ranks(),
                      [&](int rank) { return signature(plan, communicating, uneven, leaf_of_node, rank); });
  }
  const SplitModel split = split_operators(plan, graph, resolve(plan, graph));
  const bool has_shards =
      std::ranges::any_of(split.decisions, [&](const OperatorDecision& d) { return is_sharded(plan.mesh, d); });
  const std::vector<StateFactors> states = different_states(plan.mesh, split);
  return classes_of(plan.mesh.num_ranks(), [&](int rank) {
    std::string text = signature(plan, rank);
    if (has_shards) text += shard_sizes(plan, split.graph, split.decisions, rank);
    if (!leaf_of_node.empty()) text += leaves_of_neighbours(plan.mesh, leaf_of_node, rank);
    if (has_shards && !leaf_of_node.empty()) text += leaves(plan, states, leaf_of_node, rank);
    return text;
  });
}

}  // namespace strata
