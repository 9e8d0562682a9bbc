#pragma once

/// @file
/// The points of an experiment file that a verb is about.

#include "app/verbs.hpp"
#include "config/sweep.hpp"

namespace strata::app {

struct LoadedExperiment {
  ExperimentFile file;
  Expansion expansion;
};

/// @param backend device_backend or simulated: part of every point's id.
LoadedExperiment load_points(const ExperimentArguments& arguments, std::string_view backend);

/// The point that --point names, or the only one. @throws UserError listing how many there are.
const Point& selected_point(const LoadedExperiment& loaded, const ExperimentArguments& arguments);

/// @throws UserError if the file cannot be read.
std::string read_file(const std::string& path);

}  // namespace strata::app
