#pragma once

/// @file
/// The ranks that hold the same part of a parameter, and so may share its states.

#include <vector>

#include "ir/plan/plan.hpp"
#include "lower/layouts/laid_out_graph.hpp"
#include "partition/shards.hpp"
#include "partition/tensor_layout.hpp"

namespace strata {

/// Different sets of axes over which parameters have copies, in the order of parameters.
std::vector<AxisSet> sets_of_replicas(const LaidOutGraph& model);
/// The grid of the ranks that @p copies are copies along, as @p rank stands in it.
ReplicaGrid replica_grid(const AtomicAxes& axes, AxisSet copies, int rank);
/// The grids of ranks that share parameters: all ranks, or, where operators are laid out, sets_of_replicas() in turn.
ReplicaGrids grids_of(const Plan& plan, const LaidOutGraph& model, int rank);

}  // namespace strata
