#pragma once

/// @file
/// Data and tensor degrees that are the same for all layers, Megatron's layouts: what the modes that have them share.

#include "planners/layouts/layout_planning.hpp"
#include "planners/planner.hpp"

namespace strata {

/// The option `tensor`.
OptionRow tensor_option();
/// The option `tensor_in_node`.
OptionRow tensor_in_node_option();

/// Of the tensor degrees that the options `tensor` and `tensor_in_node` of @p request allow, the one that communicates
/// least of those that fit.
/// @throws as cheapest_way().
Plan cheapest_uniform_degrees(const PlanRequest& request, const LayoutPlanning& planning);

}  // namespace strata
