#pragma once

/// @file
/// The groups of a rank's Program that are sets of atomic axes: ranks that differ along these alone.

#include <map>

#include "lower/layouts/laid_out_graph.hpp"
#include "lower/step/builder.hpp"
#include "partition/tensor_layout.hpp"

namespace strata {

class AxisGroups {
 public:
  /// Adds a group for every set of axes over which the model redistributes or sums, in an order that all ranks share.
  AxisGroups(const AtomicAxes& axes, const LaidOutGraph& model, int rank, ProgramBuilder& builder);

  /// @return -1: the rank is alone. @throws InternalError if nothing communicates over @p axes.
  int of(AxisSet axes) const;
  /// All ranks, where they are one stage.
  int everybody() const { return of(all_); }

 private:
  AxisSet all_ = 0;
  std::map<AxisSet, int> groups_;
};

}  // namespace strata
