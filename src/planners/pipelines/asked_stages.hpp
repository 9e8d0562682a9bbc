#pragma once

/// @file
/// Stages as the options of a mode ask for them: `cut_by`, and `cut_at` where the mode has it.

#include <fmt/core.h>

#include <cstdint>
#include <string>

#include "base/error.hpp"
#include "partition/stages.hpp"
#include "planners/planner.hpp"

namespace strata {

inline std::string asked_cut_at(const PlanRequest& request) {
  return request.options.contains("cut_at") ? request.option<std::string>("cut_at") : Stages{}.cut_at;
}

/// The most that the model has.
inline std::int64_t most_stages_of_model(const PlanRequest& request) {
  return std::ssize(cut_points(request.graph, asked_cut_at(request)));
}

/// @throws Unsupported with the numbers for more stages than the model has.
inline Stages asked_stages(const PlanRequest& request, std::int64_t count) {
  const std::string cut_at = asked_cut_at(request);
  const std::int64_t most = most_stages_of_model(request);
  if (count > 1 && count > most) {
    throw Unsupported(fmt::format("{}: {} stages on {} ranks, but {} has {}", request.base.strategy, count,
                                  request.base.mesh.num_ranks(), request.graph.name,
                                  cut_at == "block" ? fmt::format("{} blocks, and a stage has one or more", most)
                                                    : fmt::format("{} operators that a stage can begin with", most)));
  }
  return {.count = static_cast<int>(count), .cut_by = request.option<std::string>("cut_by"), .cut_at = cut_at};
}

}  // namespace strata
