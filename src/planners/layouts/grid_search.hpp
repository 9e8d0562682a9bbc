#pragma once

/// @file
/// Baselines that cut the whole model in one way: what little there is to choose is looked at one by one, and the way
/// that communicates least, of those that fit, is taken. AutoDDL's paper does so by hand (sec. 5).

#include <string>
#include <vector>

#include "planners/layouts/layout_planning.hpp"

namespace strata {

struct WayToCut {
  std::string name;             ///< "data 2x1 x tensor 4x1"
  std::vector<Layout> layouts;  ///< by layer
};

/// The first limit that a layer breaks; empty: none.
std::string broken_limit(const LayoutPlanning& planning, const WayToCut& way);

/// @param ways those that the request allows, in any order: of equal cost the first is taken. @param broken why others
/// are not among them; may be empty.
/// @throws Unsupported where sizes forbid all of them: the last one's first broken limit. OutOfMemory where none fits.
Plan cheapest_way(const LayoutPlanning& planning, const std::vector<WayToCut>& ways, std::string broken);

}  // namespace strata
