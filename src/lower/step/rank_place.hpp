#pragma once

/// @file
/// Where a rank stands in the mesh, and what of the model is there.

#include <vector>

#include "ir/plan/plan.hpp"
#include "lower/layouts/laid_out_graph.hpp"
#include "lower/lower.hpp"
#include "partition/stages.hpp"

namespace strata {

struct RankPlace {
  RankPlace(const Plan& plan, const LaidOutGraph& model, int rank)
      : index(place_of_rank(plan.mesh, rank)),
        data_size(axis_size(plan.mesh, "data")),
        first_micro_batch(coordinate(plan.mesh, "micro_batch", rank) * plan.schedule.micro_batches /
                          axis_size(plan.mesh, "micro_batch")),
        num_stages(axis_size(plan.mesh, "stage")),
        stage_index(coordinate(plan.mesh, "stage", rank)),
        stages(of_places(model.stages, num_stages)),
        stage(stages[static_cast<std::size_t>(stage_index)]) {}

  int index;  ///< of OrdersOfPlaces
  int data_size;
  int first_micro_batch;      ///< of those that it takes
  int num_stages;             ///< ranks that hold the model together, each consecutive stages of the plan
  int stage_index;            ///< among these
  std::vector<Stage> stages;  ///< what each of these holds
  Stage stage;                ///< what this rank holds

 private:
  static std::vector<Stage> of_places(const std::vector<Stage>& stages, int num_places) {
    const std::size_t each = stages.size() / static_cast<std::size_t>(num_places);
    std::vector<Stage> places;
    for (std::size_t s = 0; s < stages.size(); s += each) {
      const int first = stages[s].first_operator;
      places.push_back({first, stages[s + each - 1].end() - first});
    }
    return places;
  }
};

}  // namespace strata
