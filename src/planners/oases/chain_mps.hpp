#pragma once

/// @file
/// A chain as an integer linear program, for any solver: equations 5 and 6 of Oases' paper in the linear form that its
/// authors' program takes from Alpa. Binary x_i_a: node i has choice a; y_i_a_b: node i has a and the next one b, whole
/// by itself where the x are.

#include <span>
#include <string>

#include "planners/oases/chain.hpp"

namespace strata {

/// Free MPS; minimised: seconds. @param choice_names by choice, @param node_names by node: comments say them.
std::string to_mps(const Chain& chain, std::span<const std::string> node_names,
                   std::span<const std::string> choice_names);

}  // namespace strata
