#pragma once

/// @file
/// The groups over which sharded states are gathered, summed and spread, one set for each state of a plan.

#include <map>
#include <span>
#include <vector>

#include "ir/plan/plan.hpp"
#include "lower/step/builder.hpp"
#include "partition/shards.hpp"

namespace strata {

class ShardGroups {
 public:
  /// Groups of a rank's Program; -1: the rank is alone.
  struct Set {
    int parameter = -1;  ///< p: together they hold one copy of a parameter
    int spread = -1;     ///< os/p: of those with the same p shard, they hold one copy of its optimizer states
    int replicas = -1;   ///< dp/p: all that hold the same p shard
    int owners = -1;     ///< dp/os: all that hold the same os shard
    int optimizer = -1;  ///< os: together they hold one copy of the optimizer states
    /// Quantised gradients come to their shards in two hops: the members of `parameter` that are on this rank's node,
    /// and those of all its nodes that have this rank's place there.
    int on_node = -1, across_nodes = -1;
    int secondary = -1;  ///< p_backward: together they hold a second copy of a parameter (ZeRO++)
    int num_parameter = 1, parameter_index = 0;
    int num_spread = 1, spread_index = 0;
    bool has_secondary = false;  ///< p_backward is given, if only over one rank
    int num_secondary = 1, secondary_index = 0;
  };

  /// Adds groups to the Program, in the order of the parameters: the same on all ranks. @param data by grid the group
  /// of all replicas, which there is already; -1: there is one rank.
  ShardGroups(const Plan& plan, std::span<const ParameterShard> shards, const ReplicaGrids& grids,
              std::span<const int> data, ProgramBuilder& builder);

  const Set& of(int parameter) const {
    return sets_[static_cast<std::size_t>(set_of_[static_cast<std::size_t>(parameter)])];
  }

 private:
  std::vector<Set> sets_;
  std::vector<int> set_of_;  ///< by parameter
};

}  // namespace strata
