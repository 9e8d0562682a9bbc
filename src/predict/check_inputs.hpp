#pragma once

/// @file
/// Before a sweep is queued: models that cannot be built and data that cannot be read are found at once, not by every
/// job after hours in a queue. What a mode refuses and what does not fit are results, and are left to the jobs.

#include <span>
#include <string>

#include "config/sweep.hpp"

namespace strata::predict {

/// @param experiment_file data are found relative to it.
/// @throws UserError of the first bad point, with its number.
void check_inputs(std::span<const Point> points, const std::string& experiment_file);

}  // namespace strata::predict
