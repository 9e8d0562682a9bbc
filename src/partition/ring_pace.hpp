#pragma once

/// @file
/// How far the replicas of cyclic data parallelism keep behind each other: a value, by replica.
///
/// Replicas stand in a ring, each behind the one with the micro-batch before, and the first one behind the last, whose
/// training step it is one ahead of. Each takes 2K passes a training step, the forward of K stages, then the backward
/// of them; with N replicas evenly over the ring each is s = 2K/N passes behind the one before. So that it is, no pass
/// begins before some pass of the replica before is over, of which a token of four bytes tells:
/// - paced: pass k waits for pass k + s - 1, so that a replica is s passes behind or more; where all passes take
/// equally
///   long it is s behind, each stage is used by one of as many replicas, and what comes with a message is waited for.
/// - begun: pass k waits for pass k + s - 2, that is until pass k + s - 1 can begin. A replica may be one pass nearer,
///   which hides messages that take less than one.
///
/// Source: Fournier et al., Cyclic Data Parallelism, 2024, fig. 1: paced, with as many stages as replicas. The rest is
/// ours.

#include <algorithm>
#include <optional>

#include "ir/plan/plan.hpp"

namespace strata {

struct RingPace {
  /// A pass of another replica.
  struct Pass {
    int number = 0;  ///< in its training step
    int step = 0;    ///< its training step, relative to the one that it is asked for
    bool operator==(const Pass&) const = default;
  };
  int replica = 0;
  int num_replicas = 1;
  int num_passes = 0;  ///< of a replica in a training step
  int lead = 0;        ///< a pass waits for the pass of the replica before that is so many passes ahead

  int before() const { return (replica + num_replicas - 1) % num_replicas; }
  int behind() const { return (replica + 1) % num_replicas; }
  /// What pass @p pass waits for, of the replica before.
  Pass awaited(int pass) const { return at(pass + lead - (replica == 0 ? num_passes : 0)); }
  /// What waits for pass @p pass, of the replica behind.
  Pass waiting(int pass) const { return at(pass - lead + (behind() == 0 ? num_passes : 0)); }
  /// The training step of the token between a pass and @p other, relative to the pass's own: the earlier of theirs.
  /// Where one of the two is not trained any more, or not yet, both ends so leave it out.
  static int step_of_token(const Pass& other) { return std::min(0, other.step); }

 private:
  Pass at(int pass) const {
    const int step = pass >= 0 ? pass / num_passes : -((num_passes - 1 - pass) / num_passes);
    return {pass - step * num_passes, step};
  }
};

/// Of replica @p replica; none: it waits for data alone. As many passes as the replicas are apart are a whole number.
std::optional<RingPace> ring_pace(const Schedule& schedule, int num_stages, int replica);

}  // namespace strata
