#pragma once

/// @file
/// The replicas of a stage in a pyramid as one of them sees them in its Program: its neighbours, and the groups and
/// streams of what they hand on. Consecutive micro-batches are taken by consecutive replicas, so each always sends to
/// the one behind it and receives from the one before it, around a ring. Partial sums and whole ones are in a group of
/// their own: a whole sum does not wait behind a partial one of the next training step.

#include <string>
#include <vector>

#include "ir/plan/stage_pyramid.hpp"

namespace strata {

struct ReplicaLinks {
  /// Of world rank @p rank. @param first_stream the number of the first of `streams`.
  ReplicaLinks(const StagePyramid& of_pyramid, int rank, int first_stream);

  bool is_alone() const { return num_replicas == 1; }
  int before() const { return (replica + num_replicas - 1) % num_replicas; }
  int behind() const { return (replica + 1) % num_replicas; }
  /// How many micro-batches behind the last one of training step @p step this replica takes one, from that one on: 0
  /// where it takes the last one itself. So it updates as the so many-th behind the replica that has the whole sum.
  int distance_from_last(int step) const;

  StagePyramid pyramid;
  int stage = 0;
  int replica = 0;
  int num_replicas = 1;
  std::vector<std::string> streams{};  ///< their names
  struct Link {
    int group = -1;                        ///< of all replicas; -1 until it is in the Program
    int from_before = -1, to_behind = -1;  ///< streams
  };
  Link partial{}, whole{};
};

}  // namespace strata
