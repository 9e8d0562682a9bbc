#pragma once

/// @file
/// Whether a training step of a ring may take so long, with the waits of one table and with whatever cut of a box: no
/// cycle of waits takes longer than its training steps. Asked many times for a graph that is made once, and answered
/// without the ratio: longest ways over the waits, which come to an end (Bellman and Ford).

#include <vector>

#include "planners/cyclic/cut_box.hpp"
#include "planners/cyclic/ring_graph.hpp"

namespace strata {

class RingWaits {
 public:
  explicit RingWaits(RingGraph graph);
  /// @return false: with every cut of the box a step takes more than @p limit seconds. True for a single cut: it takes
  /// no more, but for rounding.
  bool may_hold(const BoxSeconds& seconds, double limit);

 private:
  bool has_cycle();

  RingGraph graph_;              ///< waits within a step are behind those that they wait for
  std::vector<double> lengths_;  ///< by wait
  std::vector<double> begins_;   ///< by event: at the earliest
  std::vector<int> after_;       ///< by event: the wait that this is because of, -1: none
  std::vector<int> seen_;        ///< by event
};

}  // namespace strata
