#pragma once

/// @file
/// The points of an experiment file that are asked for.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/sweep.hpp"
#include "predict/prepared_point.hpp"

namespace strata::predict {

/// Which points of which file, and whose plans.
struct ExperimentArguments {
  std::string file;
  std::vector<std::string> overrides;  ///< --set key=value
  std::optional<int> point;            ///< --point K
  std::string plan_file;               ///< --plan
  std::string paths_from;              ///< --paths-from: the file that paths are relative to; empty: `file`

  const std::string& origin() const { return paths_from.empty() ? file : paths_from; }
};

struct LoadedExperiment {
  ExperimentFile file;
  Expansion expansion;
};

/// @param backend device_backend or simulated: part of every point's id.
LoadedExperiment load_points(const ExperimentArguments& arguments, std::string_view backend);

/// The point that --point names, or the only one. @throws UserError listing how many there are.
const Point& selected_point(const LoadedExperiment& loaded, const ExperimentArguments& arguments);

/// That point, made ready to run, with the plan of --plan where there is one.
PreparedPoint prepare_selected(const ExperimentArguments& arguments);

}  // namespace strata::predict
