#pragma once

/// @file
/// The ways to cut a model over tensor ranks that Oases' options allow: one degree for all layers, or one a layer.

#include <string>
#include <vector>

#include "planners/layouts/grid_search.hpp"

namespace strata {

/// The option `tensor`, of one degree for all layers.
OptionRow degree_option();
/// The option `degrees`, of one a layer.
OptionRow degrees_option();

/// Those of @p request that break no limit; one where the options tensor or degrees name it.
/// @param sub_batches that each group of ranks has samples for. @throws Unsupported where all break one, with the last
/// one's; UserError where both options are set.
std::vector<WayToCut> possible_ways(const PlanRequest& request, const LayoutPlanning& planning, int sub_batches);
/// Why @p way leaves a group of ranks with fewer samples than sub-batches; empty: it does not.
std::string too_few_samples(const LayoutPlanning& planning, const WayToCut& way, int sub_batches);
/// Degrees of ways that have one for all layers, ascending.
std::vector<Factor> tensors_of(const std::vector<WayToCut>& ways);

}  // namespace strata
