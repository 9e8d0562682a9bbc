/// @file
/// `strata submit`: a sweep becomes arrays of jobs.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cli/verb.hpp"
#include "cli/verb_options.hpp"
#include "config/sweep.hpp"
#include "harness/carry_out.hpp"
#include "harness/site.hpp"
#include "predict/check_inputs.hpp"
#include "predict/selected_point.hpp"
#include "predict/shipped_folder.hpp"

namespace strata::cli {
namespace {

namespace fs = std::filesystem;

struct SubmitArguments {
  predict::ExperimentArguments experiment;
  std::string results_folder = "results";
  std::string site = "slurm";
  harness::SubmitOptions options;
};

std::string axes_text(const Point& point) {
  std::string text;
  for (const AxisValue& axis : point.axes) {
    if (axis.value != "\"unset\"") text += fmt::format("{}{}={}", text.empty() ? "" : " ", axis.key, axis.value);
  }
  return text;
}

int submit_experiment(const SubmitArguments& arguments, const Environment& environment) {
  const predict::LoadedExperiment loaded = predict::load_points(arguments.experiment, device_backend);
  harness::SubmissionRequest request;
  request.experiment_name = loaded.expansion.name;
  request.experiment_file = fs::absolute(arguments.experiment.file).lexically_normal().string();
  request.results_folder = fs::absolute(arguments.results_folder).lexically_normal().string();
  request.strata_binary = fs::read_symlink("/proc/self/exe").string();
  request.site =
      harness::find_site(arguments.site, harness::site_folders(fs::current_path(), predict::shipped_folder()));
  request.site_name_or_path =
      arguments.site.ends_with(".toml") ? fs::absolute(arguments.site).string() : arguments.site;
  std::vector<Point> points;
  if (arguments.experiment.point) {
    points.push_back(predict::selected_point(loaded, arguments.experiment));
  } else {
    points = loaded.expansion.points;
  }
  predict::check_inputs(points, arguments.experiment.file);
  for (const Point& point : points) {
    request.point_axes[point.id] = axes_text(point);
    if (!point.experiment.expect.empty()) request.expects[point.id] = point.experiment.expect;
  }
  std::vector<harness::JobArray> arrays = job_arrays(points, request.site);
  return harness::carry_out(std::move(request), std::move(arrays), points, arguments.options, environment);
}

void add_submit(const CommandLine& line) {
  const auto arguments = std::make_shared<SubmitArguments>();
  CLI::App* submit = add_verb(
      line.app, "submit", "the points of an experiment as job arrays, one a geometry, with scripts that stand alone",
      "strata submit experiments/first.toml --dry-run");
  add_experiment_options(*submit, arguments->experiment, false);
  add_results_option(*submit, arguments->results_folder);
  submit
      ->add_option("--site", arguments->site,
                   "a name that `strata list sites` prints or a path ending in .toml; local: here, without Slurm")
      ->type_name("SITE")
      ->capture_default_str();
  add_submit_options(*submit, arguments->options);
  submit->callback([line, arguments] { line.exit_code = submit_experiment(*arguments, line.environment); });
}

}  // namespace

Verb submit_verb() { return {.place = 900, .add = add_submit}; }

}  // namespace strata::cli
