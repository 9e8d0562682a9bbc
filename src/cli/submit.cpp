/// @file
/// `strata submit` and `strata resume`: a sweep, or what is missing of it, becomes arrays of jobs. Everything is on
/// disk before the first one is submitted.

#include <fmt/core.h>

#include <filesystem>
#include <set>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/exit_code.hpp"
#include "cli/site_folders.hpp"
#include "cli/verbs.hpp"
#include "harness/command.hpp"
#include "harness/queue_view.hpp"
#include "harness/submission.hpp"
#include "harness/sweep_state.hpp"
#include "predict/check_inputs.hpp"
#include "predict/selected_point.hpp"

namespace strata::cli {
namespace {

namespace fs = std::filesystem;
using harness::JobArray;
using harness::Manifest;
using harness::Submission;
using harness::SubmissionRequest;

/// Of a cluster whose Slurm cannot be asked: Slurm's own default.
constexpr std::int64_t default_max_array_size = 1001;

void print_dry(const Submission& submission, const harness::Site& site) {
  fmt::print("{}", to_table(submission));
  for (const harness::ReadyArray& array : submission.arrays) {
    fmt::print("\n# ---- {}\n{}", array_file(array.manifest, ".sh").string(), array.script);
  }
  fmt::print("\nsite {}: nothing was written or submitted\n", site.name);
}

/// One task after the other on this machine.
int run_here(const Submission& submission, const Environment& environment) {
  int worst = exit_ok;
  for (const harness::ReadyArray& array : submission.arrays) {
    for (std::size_t task = 0; task < array.manifest.job.tasks.size(); ++task) {
      worst = std::max(
          worst, harness::run_visibly({"bash", array_file(array.manifest, ".sh").string(), fmt::format("{}", task)},
                                      environment.variables));
    }
  }
  return worst == exit_ok ? exit_ok : exit_some_failed;
}

void submit_all(const Submission& submission, const harness::Slurm& slurm) {
  for (const harness::ReadyArray& array : submission.arrays) {
    const std::string script = array_file(array.manifest, ".sh").string();
    const std::string job = slurm.submit(script);
    write_job_id(array.manifest, job);
    fmt::print("job {}: {}\n", job, script);
  }
}

/// The steps that follow once it is known what runs: shown, tested, written, submitted.
int carry_out(SubmissionRequest request, std::vector<JobArray> arrays, const std::vector<Point>& points,
              const SubmitOptions& options, const Environment& environment) {
  const harness::Slurm slurm(environment.variables);
  const bool asks_slurm = request.site.has_slurm() && !options.dry_run && !options.emit;
  std::int64_t max_array_size = default_max_array_size;
  if (request.site.has_slurm() && slurm.available()) {
    max_array_size = slurm.max_array_size();
  } else if (asks_slurm) {
    throw UserError(fmt::format(
        "site {} has Slurm, but no controller answers `scontrol ping` here; --dry-run and --emit need none, and "
        "--site local runs the points on this machine",
        request.site.name));
  }
  if (request.site.has_slurm()) arrays = cut_to_size(std::move(arrays), max_array_size);
  const fs::path folder = fs::path(request.results_folder) / request.experiment_name;
  if (options.dry_run) {
    print_dry(make_submission(request, std::move(arrays), harness::next_submission(folder)), request.site);
    return exit_ok;
  }
  const Submission submission = make_submission(request, std::move(arrays), harness::claim_submission(folder));
  harness::write_point_files(folder, points);
  write_submission(submission);
  fmt::print("{}", to_table(submission));
  if (options.emit) {
    for (const harness::ReadyArray& array : submission.arrays) {
      fmt::print("{} {}\n", request.site.has_slurm() ? "sbatch" : "bash", array_file(array.manifest, ".sh").string());
    }
    return exit_ok;
  }
  if (options.test_only) {
    for (const harness::ReadyArray& array : submission.arrays) {
      fmt::print("{}\n", slurm.test(array_file(array.manifest, ".sh").string()));
    }
    return exit_ok;
  }
  std::fflush(stdout);
  if (!request.site.has_slurm()) return run_here(submission, environment);
  submit_all(submission, slurm);
  return exit_ok;
}

std::string axes_text(const Point& point) {
  std::string text;
  for (const AxisValue& axis : point.axes) {
    if (axis.value != "\"unset\"") text += fmt::format("{}{}={}", text.empty() ? "" : " ", axis.key, axis.value);
  }
  return text;
}

harness::Site site_of(const std::string& name_or_path) {
  return harness::find_site(name_or_path, site_folders(fs::current_path()));
}

}  // namespace

int submit_experiment(const SubmitArguments& arguments, const Environment& environment) {
  const predict::LoadedExperiment loaded = predict::load_points(arguments.experiment, device_backend);
  SubmissionRequest request;
  request.experiment_name = loaded.expansion.name;
  request.experiment_file = fs::absolute(arguments.experiment.file).lexically_normal().string();
  request.results_folder = fs::absolute(arguments.results_folder).lexically_normal().string();
  request.strata_binary = fs::read_symlink("/proc/self/exe").string();
  request.site = site_of(arguments.site);
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
  std::vector<JobArray> arrays = job_arrays(points, request.site);
  return carry_out(std::move(request), std::move(arrays), points, arguments.options, environment);
}

int resume_experiment(const ResumeArguments& arguments, const Environment& environment) {
  const harness::SweepState state = harness::state_with_queue(arguments.results, environment);
  const Manifest& last = state.manifests.back();
  SubmissionRequest request;
  request.experiment_name = last.experiment_name;
  request.experiment_file = last.experiment_file;
  request.results_folder = fs::absolute(arguments.results).lexically_normal().parent_path().string();
  request.strata_binary = fs::read_symlink("/proc/self/exe").string();
  request.site_name_or_path = arguments.site.empty() ? last.site : arguments.site;
  request.site = site_of(request.site_name_or_path);
  for (const Manifest& manifest : state.manifests) {
    request.point_axes.insert(manifest.point_axes.begin(), manifest.point_axes.end());
    request.expects.insert(manifest.expects.begin(), manifest.expects.end());
  }
  fmt::print("{}\n", summary_line(state));
  std::vector<JobArray> arrays =
      arrays_to_resume(state, std::set<std::string>(arguments.classes.begin(), arguments.classes.end()));
  for (JobArray& array : arrays) {
    if (arguments.time_limit_minutes > 0) array.geometry.time_limit_minutes = arguments.time_limit_minutes;
  }
  if (arrays.empty()) {
    fmt::print("nothing to resume\n");
    return exit_ok;
  }
  return carry_out(std::move(request), std::move(arrays), {}, arguments.options, environment);
}

}  // namespace strata::cli
