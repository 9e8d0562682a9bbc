#pragma once

/// @file
/// What tells the classes of rank_classes.hpp apart, in numbers: those of the named axes, and how ranks with equal
/// numbers are told apart by whom they communicate with.

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "ir/plan/plan.hpp"
#include "lower/rank_classes.hpp"

namespace strata {

/// What tells a rank's class from others, number after number; as many of every rank of a plan.
using Signature = std::vector<std::int64_t>;

/// By rank a number that is its group's. Every group is looked at once, not once a member: with groups that grow with
/// the ranks, the latter would be work that grows with their square.
/// @param members_of a rank's group, itself included. Groups of two ranks are the same or have no rank in common.
std::vector<int> numbers_of_groups(int num_ranks, const std::function<std::vector<int>(int)>& members_of,
                                   const std::function<int(const std::vector<int>&)>& number_of);

/// What of a rank's signature the named axes say: its coordinates off the data axis, how far away, in nodes, its
/// neighbours on these axes are, and how its data group lies on the nodes.
class AxesSignature {
 public:
  explicit AxesSignature(const Mesh& mesh);

  void append(int rank, Signature& signature) const;

 private:
  const Mesh& mesh_;
  std::vector<int> data_shapes_;
};

/// Which of a rank's neighbours off the data axis hang under its own leaf switch: what it sends them crosses the spine
/// or does not.
void append_leaves_of_neighbours(const Mesh& mesh, std::span<const int> leaf_of_node, int rank, Signature& signature);

/// Ranks with equal signatures are one class.
RankClasses classes_of(int num_ranks, const std::function<Signature(int)>& signature_of);

/// Two factors between which a plan has groups, see ranks_between().
struct Between {
  Factor outer, inner;
  bool operator==(const Between&) const = default;
};

/// All of them, where @p all ranks hold copies of what has these states.
std::vector<Between> factors_with_groups(const Plan& plan, const Factor& all, std::span<const StateFactors> states);

/// One way in which a plan's ranks are in groups: a rank's group, itself included.
using MembersOf = std::function<std::vector<int>(int)>;

/// Tells apart what has other partners: a rank whose group has a member with fewer samples or a shorter shard waits for
/// another class than one whose group has none, and so on until all groups of a class have the same classes in them.
/// @param groupings all ways in which ranks that communicate are in groups.
RankClasses with_equal_partners(RankClasses classes, std::span<const MembersOf> groupings);

}  // namespace strata
