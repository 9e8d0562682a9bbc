#pragma once

/// @file
/// Where a rank stands in the mesh, and what of the model is there.

#include <vector>

#include "ir/order/step_order.hpp"
#include "ir/plan/plan.hpp"
#include "lower/layouts/laid_out_graph.hpp"
#include "lower/lower.hpp"
#include "partition/stages.hpp"
#include "partition/stages_of_places.hpp"

namespace strata {

struct RankPlace {
  RankPlace(const Plan& plan, const LaidOutGraph& model, int rank)
      : index(place_of_rank(plan.mesh, rank)),
        data_size(axis_size(plan.mesh, "data")),
        first_micro_batch(coordinate(plan.mesh, "micro_batch", rank) * plan.schedule.micro_batches /
                          axis_size(plan.mesh, "micro_batch")),
        pipeline(plan),
        in_pipeline(coordinate(plan.mesh, "stage", rank)),
        parts(parts_of(model.stages, pipeline.of(in_pipeline))) {}

  int num_places() const { return pipeline.num_places(); }
  /// Whether @p segment begins what the rank holds without a gap: what it takes of a sub-batch in one pass.
  bool begins_part(const Segment& segment) const {
    return parts[static_cast<std::size_t>(part_of(segment))].first_operator == segment.first_operator;
  }
  int part_of(const Segment& segment) const {
    std::size_t part = 0;
    while (segment.first_operator >= parts[part].end()) ++part;
    return static_cast<int>(part);
  }

  int index;  ///< of OrdersOfPlaces
  int data_size;
  int first_micro_batch;     ///< of those that it takes
  StagePlaces pipeline;      ///< of the ranks that hold the model together
  int in_pipeline;           ///< its place among them
  std::vector<Stage> parts;  ///< what it holds: several of interleaved stages, of others one

 private:
  static std::vector<Stage> parts_of(const std::vector<Stage>& stages, const StagesOfPlace& held) {
    std::vector<Stage> parts;
    for (int s = held.first; s < held.end; s += held.apart) {
      const Stage& stage = stages[static_cast<std::size_t>(s)];
      if (held.apart > 1 || parts.empty()) {
        parts.push_back(stage);
      } else {
        parts.back().num_operators = stage.end() - parts.back().first_operator;
      }
    }
    return parts;
  }
};

}  // namespace strata
