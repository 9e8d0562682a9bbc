#include "lower/rank_classes.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <ranges>
#include <set>
#include <span>
#include <utility>

#include "base/collective.hpp"
#include "ir/plan/stage_pyramid.hpp"
#include "ir/program/program.hpp"
#include "lower/layouts/laid_out_classes.hpp"
#include "lower/layouts/layout_collectives.hpp"
#include "lower/lower.hpp"
#include "lower/order/orders_of_places.hpp"
#include "lower/order/schedules.hpp"
#include "lower/order/step_shape.hpp"
#include "lower/rank_model.hpp"
#include "lower/rank_signature.hpp"
#include "lower/unsupported.hpp"
#include "partition/operator_splitting.hpp"
#include "partition/sample_parts.hpp"
#include "partition/shards.hpp"
#include "partition/stages.hpp"

namespace strata {
namespace {

/// Parameters of which a rank holds equally much, and updates equally much: of one size, cut in the same parts and,
/// where tensors are dealt whole, dealt to the same owner. A model has few, however many ranks share it.
struct ShardKind {
  std::int64_t num_elements = 0;
  StateFactors factors;
  int owner = 0;
  bool operator==(const ShardKind&) const = default;
};

std::vector<ShardKind> shard_kinds(const Plan& plan, const SplitModel& split) {
  // Factors and owners are the same on all ranks.
  const std::vector<ParameterShard> shards = shards_of(plan, split.graph, split.decisions, 0);
  std::vector<ShardKind> kinds;
  for (std::size_t p = 0; p < shards.size(); ++p) {
    const ShardKind kind{split.graph.parameters[p].num_elements(), shards[p].factors, shards[p].owner};
    if (std::ranges::find(kinds, kind) == kinds.end()) kinds.push_back(kind);
  }
  return kinds;
}

/// All ranks on the grid that states are sharded over.
struct PlacedRanks {
  Mesh mesh;                       ///< of places, whose nodes are in order
  std::vector<int> node_order;     ///< which node of the job stands at each of these nodes; empty: they are the same
  std::vector<int> place_of_rank;  ///< by world rank

  explicit PlacedRanks(const Mesh& of_ranks)
      : mesh(of_ranks), node_order(std::exchange(mesh.node_order, {})), place_of_rank(places_on_grid(of_ranks)) {}
  int place_of(int rank) const { return place_of_rank[static_cast<std::size_t>(rank)]; }
};

/// Sizes of all shards of the rank at a place.
void append_shard_sizes(const Plan& plan, std::span<const ShardKind> kinds, const Mesh& mesh, int place,
                        Signature& signature) {
  for (const ShardKind& kind : kinds) {
    const ParameterShard shard = shard_of(plan, kind.num_elements, kind.factors, kind.owner, mesh, place);
    signature.push_back(shard.held.size);
    signature.push_back(shard.updated.size);
    if (const auto& second = kind.factors.p_backward) {
      const int index = index_between(mesh, *second, {}, place);
      signature.push_back(chunk_of(kind.num_elements, second->total(), index).size());
    }
  }
}

/// Where the rank at a place stands among those that share states: ranks that stand alike there have equal shards.
/// @param states all of the plan's.
void append_shard_indices(std::span<const StateFactors> states, const Mesh& mesh, int place, Signature& signature) {
  for (const StateFactors& s : states) {
    signature.push_back(index_between(mesh, s.p, {}, place));
    signature.push_back(index_between(mesh, s.os, s.p, place));
    if (s.p_backward) signature.push_back(index_between(mesh, *s.p_backward, {}, place));
  }
}

/// By pair of factors and by place: under how many leaf switches the members of the place's group are.
std::vector<std::vector<int>> leaves_by_group(const PlacedRanks& ranks, std::span<const Between> pairs,
                                              std::span<const int> leaf_of_node) {
  const auto leaf_of_place = [&](int place) {
    const auto node = static_cast<std::size_t>(place / ranks.mesh.ranks_per_node);
    return leaf_of_node[ranks.node_order.empty() ? node : static_cast<std::size_t>(ranks.node_order[node])];
  };
  std::vector<std::vector<int>> leaves;
  for (const Between& pair : pairs) {
    leaves.push_back(numbers_of_groups(
        ranks.mesh.num_ranks(), [&](int place) { return ranks_between(ranks.mesh, pair.outer, pair.inner, place); },
        [&](const std::vector<int>& group) {
          std::set<int> found;
          for (const int place : group) found.insert(leaf_of_place(place));
          return static_cast<int>(found.size());
        }));
  }
  return leaves;
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

/// From one moment of a step to the next the gradient of a parameter begins or ceases to be kept.
struct GradientChange {
  std::size_t parameter = 0;
  bool comes = false;
};

/// In the order of a step: a gradient is complete with the backward of the first operator that uses its parameter, and
/// kept until the update, which may stand within backward.
std::vector<GradientChange> gradient_changes(const StepOrder& order, const ModelGraph& graph) {
  std::vector<int> first_use(graph.parameters.size(), -1);
  std::set<int> own;
  for (const OrderItem& item : order.items) {
    if (item.pass == Pass::forward) own.insert(item.segment);
  }
  for (const int s : std::views::reverse(own)) {
    const Segment& segment = order.shape.segments[static_cast<std::size_t>(s)];
    for (int o = segment.end(); o-- > segment.first_operator;) {
      for (const int p : graph.operators[static_cast<std::size_t>(o)].parameters) {
        first_use[static_cast<std::size_t>(p)] = o;
      }
    }
  }
  std::vector<GradientChange> changes;
  std::vector<bool> is_kept(graph.parameters.size(), false);
  const auto change = [&](int parameter, bool comes) {
    const auto p = static_cast<std::size_t>(parameter);
    if (is_kept[p] == comes) return;
    is_kept[p] = comes;
    changes.push_back({p, comes});
  };
  for (const OrderItem& item : order.items) {
    if (item.pass == Pass::update) {
      for (const int p : item.parameters) change(p, false);
    }
    if (item.pass != Pass::backward) continue;
    const Segment& segment = order.shape.segments[static_cast<std::size_t>(item.segment)];
    for (int o = segment.end(); o-- > segment.first_operator;) {
      for (const int p : graph.operators[static_cast<std::size_t>(o)].parameters) {
        if (first_use[static_cast<std::size_t>(p)] == o) change(p, true);
      }
    }
  }
  return changes;
}

std::vector<MembersOf> groupings(const PlacedRanks& ranks, std::span<const Between> pairs) {
  std::vector<int> rank_at(ranks.place_of_rank.size());
  for (std::size_t rank = 0; rank < rank_at.size(); ++rank) {
    rank_at[static_cast<std::size_t>(ranks.place_of_rank[rank])] = static_cast<int>(rank);
  }
  std::vector<MembersOf> all;
  for (const Between& pair : pairs) {
    all.emplace_back([&ranks, rank_at, pair](int rank) {
      std::vector<int> members = ranks_between(ranks.mesh, pair.outer, pair.inner, ranks.place_of(rank));
      for (int& member : members) member = rank_at[static_cast<std::size_t>(member)];
      return members;
    });
  }
  return all;
}

std::int64_t in_arena(std::int64_t bytes) {
  return (bytes + arena_alignment_bytes - 1) / arena_alignment_bytes * arena_alignment_bytes;
}

/// Bytes that a rank holds in its own way: of states that stay, then beside them of the gradients that are kept from
/// one of @p changes to the next.
std::vector<std::int64_t> own_bytes(const Plan& plan, const ModelGraph& graph,
                                    std::span<const OperatorDecision> decisions,
                                    std::span<const GradientChange> changes, int rank) {
  const std::vector<ParameterShard> shards = shards_of(plan, graph, decisions, rank);
  const std::int64_t num_f32 = optimizer_bytes_per_element(plan) / size_of(DType::f32);
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
  for (const GradientChange& change : changes) {
    const ParameterShard& shard = shards[change.parameter];
    const bool keeps_part = shard.factors.g != shard.factors.p || plan.optimizer.gradients == "reduce_scatter";
    const std::int64_t kept = (keeps_part ? shard.updated : shard.held).size * size_of(plan.dtypes.gradient);
    bytes.push_back(bytes.back() + (change.comes ? kept : -kept));
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

/// How many of each sub-batch the rank has, on a mesh with a data axis.
void append_samples(const Plan& plan, std::span<const OperatorDecision> decisions, int rank, Signature& signature) {
  for (int u = 0; u < plan.schedule.sub_batches; ++u) {
    signature.push_back(samples_of_rank(plan, samples_of_sub_batch(plan, decisions, u).size(), rank).size());
  }
}

}  // namespace

std::vector<int> fullest_ranks(const Plan& plan, const ModelGraph& graph) {
  if (has_layouts(plan.mesh)) return fullest_laid_out_ranks(plan, graph, rank_model(plan, graph, 0));
  if (pyramid_of(plan.mesh)) return rank_classes(plan, graph).representatives;
  const SplitModel split = split_operators(plan, graph, resolve(plan, graph));
  refuse_what_is_missing(plan, split.graph, split.decisions);
  const LayoutCollectives none;
  const std::vector<Stage> stages = cut_into_stages(split.graph, plan.stages);
  const std::vector<RecomputedRegion> regions = recomputed_regions(split.graph, split.decisions, none, stages);
  const OrdersOfPlaces orders(plan, step_shape(plan, split.graph, regions, stages, none), order_generator_of(plan));
  std::vector<std::vector<GradientChange>> changes;  // by place
  for (int place = 0; place < orders.num_places(); ++place) {
    changes.push_back(gradient_changes(orders.of(place), split.graph));
  }
  const std::vector<ShardKind> kinds = shard_kinds(plan, split);
  const PlacedRanks placed(plan.mesh);
  struct Most {
    std::int64_t bytes = -1;
    int rank = 0;
  };
  std::map<std::vector<int>, std::vector<Most>> by_place;           // by moment
  std::set<std::pair<std::vector<int>, Signature>> standing, seen;  // where earlier ranks stand, and what they have
  const std::vector<StateFactors> states = different_states(plan.mesh, split);
  for (int rank = 0; rank < plan.mesh.num_ranks(); ++rank) {
    std::vector<int> place = coordinates_off_data(plan.mesh, rank);
    // What a rank has of samples, all of its activations are: those with fewer are looked at beside those with more.
    place.push_back(static_cast<int>(samples_of_rank(plan, rank).size()));
    Signature sizes;
    append_samples(plan, split.decisions, rank, sizes);
    Signature indices = sizes;
    append_shard_indices(states, placed.mesh, placed.place_of(rank), indices);
    if (!standing.emplace(place, std::move(indices)).second) continue;
    append_shard_sizes(plan, kinds, placed.mesh, placed.place_of(rank), sizes);
    if (!seen.emplace(place, std::move(sizes)).second) continue;  // an earlier rank holds as much
    std::vector<Most>& most = by_place[place];
    const std::vector<std::int64_t> bytes = own_bytes(
        plan, split.graph, split.decisions, changes[static_cast<std::size_t>(place_of_rank(plan.mesh, rank))], rank);
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
  if (has_layouts(plan.mesh)) return laid_out_classes(plan, graph, rank_model(plan, graph, 0), leaf_of_node);
  const SplitModel split = split_operators(plan, graph, resolve(plan, graph));
  const bool has_shards =
      std::ranges::any_of(split.decisions, [&](const OperatorDecision& d) { return is_sharded(plan.mesh, d); });
  const AxesSignature named(plan.mesh);
  const auto pyramid = pyramid_of(plan.mesh);
  const PlacedRanks placed(plan.mesh);
  std::vector<ShardKind> kinds;
  std::vector<Between> pairs;
  std::vector<std::vector<int>> leaves;
  if (has_shards) {
    kinds = shard_kinds(plan, split);
    pairs = factors_with_groups(plan, data_grid(placed.mesh), different_states(plan.mesh, split));
    if (!leaf_of_node.empty()) leaves = leaves_by_group(placed, pairs, leaf_of_node);
  }
  RankClasses classes = classes_of(plan.mesh.num_ranks(), [&](int rank) {
    Signature signature;
    append_samples(plan, split.decisions, rank, signature);
    named.append(rank, signature);
    if (pyramid) signature.push_back(rank);  // replicas of a stage take other micro-batches
    append_shard_sizes(plan, kinds, placed.mesh, placed.place_of(rank), signature);
    if (!leaf_of_node.empty()) append_leaves_of_neighbours(plan.mesh, leaf_of_node, rank, signature);
    for (const std::vector<int>& of_group : leaves) {
      signature.push_back(of_group[static_cast<std::size_t>(placed.place_of(rank))]);
    }
    return signature;
  });
  return with_equal_partners(std::move(classes), groupings(placed, pairs));
}

}  // namespace strata
