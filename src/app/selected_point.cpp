#include "app/selected_point.hpp"

#include <fmt/core.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "app/strategy_options.hpp"
#include "base/error.hpp"

namespace strata::app {

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

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    throw UserError(fmt::format("{}: cannot be read: {}", path, std::strerror(errno)));
  }
  if (std::filesystem::is_directory(path)) {  // opens, and fails when it is read
    throw UserError(fmt::format("{}: cannot be read: is a directory", path));
  }
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace strata::app
