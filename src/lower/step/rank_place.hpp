#pragma once

/// @file
/// Where a rank stands in the mesh, and what of the model is there.

#include <vector>

#include "ir/plan/plan.hpp"
#include "lower/layouts/laid_out_graph.hpp"
#include "partition/stages.hpp"

namespace strata {

struct RankPlace {
  RankPlace(const Plan& plan, const LaidOutGraph& model, int rank)
      : data_size(axis_size(plan.mesh, "data")),
        num_stages(plan.stages.count),
        stage_index(coordinate(plan.mesh, "stage", rank)),
        stages(model.stages),
        stage(stages[static_cast<std::size_t>(stage_index)]) {}

  int data_size;
  int num_stages;
  int stage_index;
  std::vector<Stage> stages;
  Stage stage;  ///< this rank's
};

}  // namespace strata
