#pragma once

/// @file
/// What the modes over stages share: their options, and the mesh {stage = S, data = N / S}.

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/error.hpp"
#include "planners/even_micro_batches.hpp"
#include "planners/pipelines/asked_stages.hpp"
#include "planners/planner.hpp"

namespace strata {

inline std::span<const OptionRow> pipeline_options() {
  static const std::array rows = {
      OptionRow{"stages", std::int64_t{0}, ">= 0",
                "stages of the pipeline; 0: as many as divide the ranks and the model has"},
      OptionRow{"cut_by", std::string("flops"), "flops | operators | parameters",
                "what the largest stage has the least of"},
      OptionRow{"cut_at", std::string("block"), "block | operator", "where a stage may begin"},
  };
  return rows;
}

/// @p stages on @p in_pipeline ranks that hold the model together.
/// @throws Unsupported for more stages than blocks, for ranks that the pipeline's do not divide, and for a batch that
/// micro-batches do not divide.
inline Plan pipeline_plan(const PlanRequest& request, ScheduleKind schedule, std::int64_t stages,
                          std::int64_t in_pipeline) {
  Plan plan = request.base;
  const int ranks = plan.mesh.num_ranks();
  plan.stages = asked_stages(request, stages);
  if (ranks % in_pipeline != 0) {
    throw Unsupported(fmt::format(
        "{}: {} nodes × {} ranks a node = {} ranks are not divisible by {}", plan.strategy, plan.mesh.nodes,
        plan.mesh.ranks_per_node, ranks,
        stages == in_pipeline ? fmt::format("{} stages", stages) : fmt::format("{} ranks of a pipeline", in_pipeline)));
  }
  plan.mesh.axes = {{"stage", static_cast<int>(in_pipeline)}, {"data", ranks / static_cast<int>(in_pipeline)}};
  refuse_uneven_micro_batches(plan);
  plan.schedule.kind = schedule;
  return plan;
}

/// With a stage a rank.
inline Plan pipeline_plan(const PlanRequest& request, ScheduleKind schedule, std::int64_t stages) {
  return pipeline_plan(request, schedule, stages, stages);
}

/// The most that divide the ranks and that the model has.
inline std::int64_t most_stages(const PlanRequest& request) {
  const int ranks = request.base.mesh.num_ranks();
  std::int64_t stages = std::min<std::int64_t>(ranks, most_stages_of_model(request));
  while (stages > 1 && ranks % stages != 0) --stages;
  return std::max<std::int64_t>(stages, 1);
}

/// As many stages as the option says.
inline Plan pipeline_plan(const PlanRequest& request, ScheduleKind schedule) {
  const auto asked = request.option<std::int64_t>("stages");
  return pipeline_plan(request, schedule, asked == 0 ? most_stages(request) : asked);
}

}  // namespace strata
