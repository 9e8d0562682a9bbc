#pragma once

/// @file
/// Stages that stay where they are, also of a model whose operators cost a little more or less.

#include <cstddef>
#include <vector>

#include "ir/model/model_graph.hpp"
#include "ir/plan/plan.hpp"
#include "partition/stages.hpp"

namespace strata {

/// @p stages of @p graph, told by the operators that they begin with.
/// @throws Unsupported as cut_into_stages().
inline Stages by_name(Stages stages, const ModelGraph& graph) {
  const std::vector<Stage> cut = cut_into_stages(graph, stages);
  stages.begins.clear();
  for (std::size_t s = 1; s < cut.size(); ++s) {
    stages.begins.push_back(graph.operators[static_cast<std::size_t>(cut[s].first_operator)].name);
  }
  return stages;
}

}  // namespace strata
