#pragma once

/// @file
/// Before a sweep is queued: models that cannot be built, clusters that nobody describes and data that cannot be read
/// are found at once, not by every job after hours in a queue. What a mode refuses and what does not fit are results,
/// and are left to the jobs.

#include <span>
#include <string>

#include "config/sweep.hpp"

namespace strata::predict {

/// Models and clusters of all points exist. Strategies are known before there are points.
/// @param experiment_file descriptions of clusters are found relative to it.
/// @throws UserError of the first bad point, with its number.
void check_names(std::span<const Point> points, const std::string& experiment_file);

/// These, and data. @param experiment_file as above, and data too. @throws UserError as above.
void check_inputs(std::span<const Point> points, const std::string& experiment_file);

}  // namespace strata::predict
