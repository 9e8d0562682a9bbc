#pragma once

/// @file
/// Layers and their layouts as a LayoutProblem, and back.

#include <memory>
#include <span>
#include <vector>

#include "planners/layouts/candidates.hpp"
#include "planners/layouts/lasting_bytes.hpp"
#include "planners/layouts/layout_problem.hpp"
#include "planners/layouts/step_costs.hpp"

namespace strata {

struct LayoutSpace {
  LayoutProblem problem;
  std::vector<std::size_t> variable_of_layer;
  std::vector<std::shared_ptr<const std::vector<Layout>>> candidates;  ///< by variable

  /// By layer.
  std::vector<Layout> layouts(std::span<const int> choices) const;
};

/// @param ties_repeats layers at the same place of equal blocks share one layout (AutoDDL sec. 4.5.1).
/// @param memory null: bytes count nothing. @throws Unsupported where a layer has no candidate.
LayoutSpace layout_space(const LayerChain& chain, const StepCosts& costs, const LastingBytes* memory,
                         const LayoutLimits& limits, bool ties_repeats);

}  // namespace strata
