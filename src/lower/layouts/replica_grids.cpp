#include "lower/layouts/replica_grids.hpp"

#include <algorithm>

namespace strata {

std::vector<AxisSet> sets_of_replicas(const LaidOutGraph& model) {
  std::vector<AxisSet> sets;
  for (const AxisSet set : model.replicas) {
    if (std::ranges::find(sets, set) == sets.end()) sets.push_back(set);
  }
  return sets;
}

ReplicaGrid replica_grid(const AtomicAxes& axes, AxisSet copies, int rank) {
  const Factor size = axes.factor(copies);
  return {.mesh = {.nodes = size.nodes, .ranks_per_node = size.in_node, .axes = {}},
          .ranks = axes.group(copies, rank),
          .place = axes.index(copies, rank)};
}

ReplicaGrids grids_of(const Plan& plan, const LaidOutGraph& model, int rank) {
  if (!model.is_laid_out()) return whole_grids(plan.mesh, rank);
  const AtomicAxes axes(plan.mesh);
  const std::vector<AxisSet> sets = sets_of_replicas(model);
  ReplicaGrids grids;
  for (const AxisSet set : sets) grids.grids.push_back(replica_grid(axes, set, rank));
  for (const AxisSet set : model.replicas) {
    grids.of_parameter.push_back(static_cast<int>(std::ranges::find(sets, set) - sets.begin()));
  }
  return grids;
}

}  // namespace strata
