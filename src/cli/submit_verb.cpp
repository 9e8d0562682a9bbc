/// @file
/// `strata submit`: a sweep becomes arrays of jobs.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/console.hpp"
#include "base/environment.hpp"
#include "base/exit_code.hpp"
#include "base/folder_path.hpp"
#include "base/progress.hpp"
#include "cli/verb.hpp"
#include "cli/verb_options.hpp"
#include "config/sweep.hpp"
#include "harness/carry_out.hpp"
#include "harness/left_out.hpp"
#include "harness/reasons.hpp"
#include "harness/site.hpp"
#include "predict/check_inputs.hpp"
#include "predict/planned_points.hpp"
#include "predict/prepared_point.hpp"
#include "predict/selected_point.hpp"
#include "predict/shipped_folder.hpp"
#include "predict/training_inputs.hpp"
#include "predict/training_length.hpp"
#include "results/outcome.hpp"
#include "run/stopping_rule.hpp"

namespace strata::cli {
namespace {

namespace fs = std::filesystem;

struct SubmitArguments {
  predict::ExperimentArguments experiment;
  std::string results_folder = "results";
  std::string site = "slurm";
  bool all = false;      ///< points that cannot start, too
  bool no_plan = false;  ///< nobody looks which can
  harness::SubmitOptions options;
};

std::string axes_text(const Point& point) {
  std::string text;
  for (const AxisValue& axis : point.axes) {
    if (axis.value != "\"unset\"") text += fmt::format("{}{}={}", text.empty() ? "" : " ", axis.key, axis.value);
  }
  return text;
}

/// Of a whole training; 0: the rule of [measure] decides. Opens the data only where they are said in epochs.
std::int64_t num_steps_of(const Experiment& experiment, std::int64_t global_batch, const std::string& experiment_file) {
  if (experiment.train.epochs == 0) return experiment.train.steps;
  const predict::TrainingInputs inputs =
      predict::make_training_inputs(experiment, predict::model_of(experiment), global_batch, experiment_file);
  return predict::training_length(experiment, inputs.order).num_steps;
}

/// What planning says of points, beside the points that are queued.
struct PlannedSweep {
  std::vector<Point> queued;
  std::vector<harness::LeftOutPoint> left_out;
  std::vector<harness::Complaint> planned_at_start;
  std::map<std::string, double> steps_seconds;  ///< by point, of one launch at most; absent: unknown
};

/// A point whose outcome the experiment expects is queued with it: that outcome is asked for.
PlannedSweep plan_sweep(const std::vector<Point>& points, const SubmitArguments& arguments,
                        const std::string& experiment_folder, const Environment& environment) {
  Progress progress("planned", points.size(), environment.terminal);
  const std::vector<predict::PlannedPoint> planned =
      predict::plan_points(points, arguments.experiment.file, experiment_folder, available_cores(),
                           [&](std::size_t done) { progress.show(done); });
  PlannedSweep sweep;
  for (std::size_t p = 0; p < points.size(); ++p) {
    const Point& point = points[p];
    const predict::PlannedPoint& plan = planned[p];
    if (plan.status != results::Status::ok && !arguments.all && !is_expected(point.experiment.expect, plan.status)) {
      sweep.left_out.push_back(
          {.point_id = point.id, .axes = axes_text(point), .status = plan.status, .message = plan.reason});
      continue;
    }
    sweep.queued.push_back(point);
    if (plan.status != results::Status::ok) {
      sweep.steps_seconds[point.id] = 0.0;  // ends before its first step
    } else if (!plan.reason.empty()) {
      sweep.planned_at_start.push_back(
          {.state = "at start", .message = plan.reason, .point_id = point.id, .is_bad = false});
    } else if (!std::isnan(plan.step_seconds)) {
      const std::int64_t num_steps = num_steps_of(point.experiment, plan.global_batch, arguments.experiment.file);
      const std::int64_t end = run::latest_end(point.experiment.measure, num_steps, /*first_step=*/0, {});
      sweep.steps_seconds[point.id] = plan.step_seconds * static_cast<double>(end);
    }
  }
  return sweep;
}

void print_what_is_not_planned(const PlannedSweep& sweep, std::size_t num_points) {
  if (!sweep.left_out.empty()) {
    say("{} of {} points cannot start and are left out (--all queues them too):\n{}\n", sweep.left_out.size(),
        num_points, to_text(sweep.left_out));
  }
  if (!sweep.planned_at_start.empty()) {
    say("{} of {} points are planned where they start:\n{}\n", sweep.planned_at_start.size(), num_points,
        by_reason(sweep.planned_at_start, /*colour=*/false));
  }
}

int submit_experiment(const SubmitArguments& arguments, const Environment& environment) {
  const predict::LoadedExperiment loaded = predict::load_points(arguments.experiment, device_backend);
  harness::SubmissionRequest request;
  request.experiment_name = loaded.expansion.name;
  request.experiment_file = fs::absolute(arguments.experiment.file).lexically_normal().string();
  request.results_folder = folder_path(arguments.results_folder).string();
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
  if (!arguments.no_plan) {
    const std::size_t num_points = points.size();
    PlannedSweep sweep = plan_sweep(points, arguments,
                                    (fs::path(request.results_folder) / request.experiment_name).string(), environment);
    print_what_is_not_planned(sweep, num_points);
    if (sweep.queued.empty()) {
      say("no point is left: nothing is submitted\n");
      return exit_refused;
    }
    points = std::move(sweep.queued);
    request.left_out = std::move(sweep.left_out);
    request.has_predictions = true;
    request.steps_seconds = std::move(sweep.steps_seconds);
  }
  for (const Point& point : points) {
    request.point_files[point.id] = to_text(point.experiment);
    request.point_axes[point.id] = axes_text(point);
    if (!point.experiment.expect.empty()) request.expects[point.id] = point.experiment.expect;
  }
  std::vector<harness::JobArray> arrays = job_arrays(points, request.site);
  return harness::carry_out(std::move(request), std::move(arrays), arguments.options, environment);
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
  submit->add_flag("--all", arguments->all, "queue also points of which planning says that they cannot start");
  submit->add_flag("--no-plan", arguments->no_plan, "queue every point as it is; nothing is predicted")
      ->excludes("--all");
  add_submit_options(*submit, arguments->options);
  submit->callback([line, arguments] { line.exit_code = submit_experiment(*arguments, line.environment); });
}

}  // namespace

Verb submit_verb() { return {.place = 900, .add = add_submit}; }

}  // namespace strata::cli
