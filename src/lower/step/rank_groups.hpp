#pragma once

/// @file
/// The groups of one rank, in its Program. All ranks make them in the order axes, rings or data, stage, around, copies,
/// all.

#include <optional>

#include "ir/plan/plan.hpp"
#include "lower/layouts/axis_groups.hpp"
#include "lower/layouts/axis_rings.hpp"
#include "lower/layouts/laid_out_graph.hpp"
#include "lower/states/parameter_states.hpp"
#include "lower/step/builder.hpp"
#include "lower/step/rank_place.hpp"

namespace strata {

struct RankGroups {
  RankGroups(const Plan& plan, const LaidOutGraph& model, const RankPlace& place, int rank, ProgramBuilder& builder);

  ParameterGroups parameters;
  /// Of the ranks of `parameters.stages`: messages from the last of them to the first, and back; -1: none.
  int around = -1;
  std::optional<AxisGroups> axes;  ///< where operators are laid out
  std::optional<AxisRings> rings;  ///< as above
};

}  // namespace strata
