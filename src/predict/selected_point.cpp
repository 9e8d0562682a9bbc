#include "predict/selected_point.hpp"

#include <fmt/core.h>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "predict/strategy_options.hpp"

namespace strata::predict {

LoadedExperiment load_points(const ExperimentArguments& arguments, std::string_view backend) {
  ExperimentFile file = load_experiment(arguments.file, arguments.overrides);
  Expansion expansion = expand(file, backend, normalise_strategy);
  return {std::move(file), std::move(expansion)};
}

const Point& selected_point(const LoadedExperiment& loaded, const ExperimentArguments& arguments) {
  const auto& points = loaded.expansion.points;
  if (!arguments.point && points.size() == 1) {
    return points.front();
  }
  if (!arguments.point) {
    throw UserError(fmt::format("{}: {} points; choose one with --point 0 … {} (strata expand lists them)",
                                arguments.file, points.size(), points.size() - 1));
  }
  if (*arguments.point < 0 || *arguments.point >= static_cast<int>(points.size())) {
    throw UserError(
        fmt::format("{}: --point {}: accepted: 0 … {}", arguments.file, *arguments.point, points.size() - 1));
  }
  return points[static_cast<std::size_t>(*arguments.point)];
}

PreparedPoint prepare_selected(const ExperimentArguments& arguments) {
  const LoadedExperiment loaded = load_points(arguments, device_backend);
  return prepare_point(selected_point(loaded, arguments).experiment, arguments.file, arguments.plan_file, nullptr,
                       available_cores());
}

}  // namespace strata::predict
