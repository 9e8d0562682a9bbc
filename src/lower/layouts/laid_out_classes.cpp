#include "lower/layouts/laid_out_classes.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "lower/layouts/axis_rings.hpp"
#include "lower/layouts/laid_out_graph.hpp"
#include "lower/layouts/layout_collectives.hpp"
#include "lower/layouts/replica_grids.hpp"
#include "lower/rank_signature.hpp"
#include "partition/shards.hpp"

namespace strata {
namespace {

/// What does not divide, over all sub-batches.
struct UnevenParts {
  std::vector<HeldCut> held;  ///< parts of unequal sizes
  AxisSet cutting = 0;        ///< axes that cut any of them
  /// Axes along which a rank's place tells what it does: it broadcasts panels of other sizes, or what ranks share they
  /// hold in shards of different sizes.
  AxisSet by_place = 0;
  /// Axes of sums of which the first rank alone gathers what is added to them.
  std::set<AxisSet> gathered_by_first;

  bool are_there() const { return !held.empty() || !gathered_by_first.empty(); }
  /// Ranks along any of @p axes may differ.
  bool are_along(AxisSet axes) const {
    return (axes & (cutting | by_place)) != 0 ||
           std::ranges::any_of(gathered_by_first, [&](AxisSet sum) { return (axes & sum) != 0; });
  }
};

/// The parts that ranks hold of @p whole have multiples of so many elements. @param largest rank 0's.
/// @param num_parts empty ones included.
std::int64_t unit_of_parts(const Parameter& whole, const Parameter& largest, std::int64_t num_parts) {
  if (largest.num_elements() * num_parts == whole.num_elements()) return largest.num_elements();
  std::int64_t unit = 1;
  if (largest.shape.size() != whole.shape.size()) return unit;
  for (std::size_t d = 0; d < whole.shape.size(); ++d) {
    if (largest.shape[d] == whole.shape[d]) unit *= whole.shape[d];
  }
  return unit;
}

/// By parameter of @p model, which is of rank 0.
std::vector<ParameterShard> shards_of_first_rank(const Plan& plan, const LaidOutGraph& model) {
  return shards_of(plan, model.graph, model.decisions, grids_of(plan, model, 0));
}

/// @param shards shards_of_first_rank().
UnevenParts uneven_parts(const Plan& plan, const ModelGraph& graph, const RankModel& rank_model, const AtomicAxes& axes,
                         std::span<const ParameterShard> shards) {
  UnevenParts uneven;
  for (const LaidOutGraph& size : rank_model.sizes) {
    uneven.by_place |= size.unequal_panels;
    for (const HeldCut& part : size.uneven_parts) {
      uneven.held.push_back(part);
      uneven.cutting |= set_of(part.cut.axes);
    }
  }
  const LaidOutGraph& model = rank_model.any();
  const bool is_dealt = plan.optimizer.sharding == "inter_tensor";
  const int ranks_of_a_stage = axes.num_ranks(axes.all());
  std::map<std::string_view, const Parameter*> wholes;  // where parts may be unequal
  if (!uneven.held.empty()) {
    for (const Parameter& whole : graph.parameters) wholes[whole.name] = &whole;
  }
  for (std::size_t p = 0; p < shards.size(); ++p) {
    if (!shards[p].is_sharded()) continue;
    const Parameter& part = model.graph.parameters[p];
    const std::int64_t unit = wholes.empty()
                                  ? part.num_elements()
                                  : unit_of_parts(*wholes.at(part.name), part, ranks_of_a_stage / model.num_copies[p]);
    const bool divide = unit % shards[p].factors.os.total() == 0;
    if (is_dealt || !divide) uneven.by_place |= model.replicas[p];
  }
  for (const auto& [p, of_sum] : model.added_by_one) {
    if (shards[static_cast<std::size_t>(p)].factors.p.total() > 1) uneven.gathered_by_first.insert(of_sum);
  }
  return uneven;
}

/// Where the rank is along axes on which that matters by itself, whether it gathers what others do not, and sizes of
/// its parts of what does not divide.
void append_sizes(const AtomicAxes& axes, const UnevenParts& uneven, int rank, Signature& signature) {
  signature.push_back(axes.index(uneven.by_place, rank));
  for (const AxisSet sum : uneven.gathered_by_first) signature.push_back(axes.index(sum, rank) == 0 ? 1 : 0);
  for (const HeldCut& part : uneven.held) signature.push_back(part_of(axes, part.cut, part.held, rank).count);
}

/// The ways in which ranks that communicate are in groups along axes of the layouts.
std::vector<MembersOf> groupings_along(const std::set<AxisSet>& sets, const AtomicAxes& axes) {
  std::vector<MembersOf> all;
  for (const AxisSet set : sets) {
    all.emplace_back([&axes, set](int rank) { return axes.group(set, rank); });
  }
  return all;
}

/// All ways, also those in which copies of a parameter have shards of its states: the ones that share one.
/// @param shards shards_of_first_rank().
std::vector<MembersOf> all_groupings(const Plan& plan, const LaidOutGraph& model, const AtomicAxes& axes,
                                     std::span<const ParameterShard> shards) {
  std::set<AxisSet> sets = communicating_axes(model);
  sets.merge(ring_axes(model));
  std::vector<MembersOf> all = groupings_along(sets, axes);
  std::map<AxisSet, std::vector<StateFactors>> states;  // by axes of the copies
  for (std::size_t p = 0; p < shards.size(); ++p) {
    if (!shards[p].is_sharded()) continue;
    std::vector<StateFactors>& known = states[model.replicas[p]];
    if (std::ranges::find(known, shards[p].factors) == known.end()) known.push_back(shards[p].factors);
  }
  for (const auto& [copies, of_copies] : states) {
    for (const Between& pair : factors_with_groups(plan, axes.factor(copies), of_copies)) {
      all.emplace_back(
          [&axes, copies, pair](int rank) { return replica_grid(axes, copies, rank).between(pair.outer, pair.inner); });
    }
  }
  return all;
}

class LaidOutSignature {
 public:
  /// @param leaf_of_node empty: leaves make no difference.
  LaidOutSignature(const Plan& plan, const RankModel& model, const AtomicAxes& axes, const UnevenParts& uneven,
                   std::span<const int> leaf_of_node)
      : plan_(plan),
        axes_(axes),
        uneven_(uneven),
        named_(plan.mesh),
        rings_(ring_axes(model.any())),
        leaf_of_node_(leaf_of_node) {
    if (leaf_of_node.empty()) return;
    for (const MembersOf& members_of : groupings_along(communicating_axes(model.any()), axes)) {
      leaves_by_group_.push_back(
          numbers_of_groups(plan.mesh.num_ranks(), members_of, [&](const std::vector<int>& group) {
            std::set<int> leaves;
            for (const int member : group) {
              leaves.insert(leaf_of_node[static_cast<std::size_t>(member / plan.mesh.ranks_per_node)]);
            }
            return static_cast<int>(leaves.size());
          }));
    }
  }

  Signature operator()(int rank) const {
    Signature signature;
    append_sizes(axes_, uneven_, rank, signature);
    if (plan_.stages.count > 1) named_.append(rank, signature);
    for (const AxisSet ring : rings_) append_ring(ring, rank, signature);
    if (leaf_of_node_.empty()) return signature;
    // Ranks at one place of all stages are told apart together: a message goes from one class to one class.
    for (const int neighbour : group_along(plan_.mesh, "stage", rank)) {
      append_leaves_of_neighbours(plan_.mesh, leaf_of_node_, neighbour, signature);
      for (const std::vector<int>& leaves : leaves_by_group_) {
        signature.push_back(leaves[static_cast<std::size_t>(neighbour)]);
      }
    }
    return signature;
  }

 private:
  /// What kinds of links the rank's ring has, and, where they differ or parts do, where the rank is: a message goes
  /// from one class to one class.
  void append_ring(AxisSet ring, int rank, Signature& signature) const {
    const std::vector<int> members = axes_.group(ring, rank);
    const auto node = [&](std::size_t i) {
      return static_cast<std::size_t>(members[i % members.size()] / plan_.mesh.ranks_per_node);
    };
    Signature links;
    for (std::size_t i = 0; i < members.size(); ++i) {
      const bool is_under_one_leaf = leaf_of_node_.empty() || leaf_of_node_[node(i)] == leaf_of_node_[node(i + 1)];
      links.push_back((node(i) == node(i + 1) ? 0 : 1) + (is_under_one_leaf ? 0 : 2));
    }
    const bool are_alike = !uneven_.are_along(ring) && std::ranges::count(links, links.front()) == std::ssize(links);
    std::ranges::copy(links, std::back_inserter(signature));
    signature.push_back(are_alike ? -1 : axes_.index(ring, rank));
  }

  const Plan& plan_;
  const AtomicAxes& axes_;
  const UnevenParts& uneven_;
  AxesSignature named_;
  std::set<AxisSet> rings_;
  std::span<const int> leaf_of_node_;
  std::vector<std::vector<int>> leaves_by_group_;  ///< [communicating set of axes][rank]
};

}  // namespace

RankClasses laid_out_classes(const Plan& plan, const ModelGraph& graph, const RankModel& model,
                             std::span<const int> leaf_of_node) {
  const AtomicAxes axes(plan.mesh);
  const std::vector<ParameterShard> shards = shards_of_first_rank(plan, model.any());
  const UnevenParts uneven = uneven_parts(plan, graph, model, axes, shards);
  RankClasses classes = classes_of(plan.mesh.num_ranks(), LaidOutSignature(plan, model, axes, uneven, leaf_of_node));
  if (!uneven.are_there()) return classes;
  return with_equal_partners(std::move(classes), all_groupings(plan, model.any(), axes, shards));
}

std::vector<int> fullest_laid_out_ranks(const Plan& plan, const ModelGraph& graph, const RankModel& model) {
  const AtomicAxes axes(plan.mesh);
  const UnevenParts uneven = uneven_parts(plan, graph, model, axes, shards_of_first_rank(plan, model.any()));
  std::set<AxisSet> unequal_rings;  // whose blocks differ in width, and with it what is kept of them at a time
  for (const LaidOutGraph& size : model.sizes) {
    for (const RingBlocks& ring : size.rings) {
      if (std::ranges::adjacent_find(ring.widths, std::ranges::not_equal_to()) != ring.widths.end()) {
        unequal_rings.insert(ring.axes);
      }
    }
  }
  return classes_of(plan.mesh.num_ranks(),
                    [&](int rank) {
                      Signature signature = {coordinate(plan.mesh, "stage", rank)};
                      append_sizes(axes, uneven, rank, signature);
                      for (const AxisSet ring : unequal_rings) signature.push_back(axes.index(ring, rank));
                      return signature;
                    })
      .representatives;
}

}  // namespace strata
