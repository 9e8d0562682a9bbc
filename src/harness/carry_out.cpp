#include "harness/carry_out.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "base/console.hpp"
#include "base/error.hpp"
#include "base/exit_code.hpp"
#include "harness/command.hpp"
#include "harness/slurm.hpp"

namespace strata::harness {
namespace {

namespace fs = std::filesystem;

/// Of a cluster whose Slurm cannot be asked: Slurm's own default.
constexpr std::int64_t default_max_array_size = 1001;

void print_dry(const Submission& submission, const Site& site) {
  say("{}", to_table(submission));
  for (const ReadyArray& array : submission.arrays) {
    say("\n# ---- {}\n{}", array_file(array.manifest, ".sh").string(), array.script);
  }
  say("\nsite {} of {}: nothing was written or submitted\n", site.name, site.file);
}

/// One task after the other on this machine.
int run_here(const Submission& submission, const Environment& environment) {
  int worst = exit_ok;
  for (const ReadyArray& array : submission.arrays) {
    for (std::size_t task = 0; task < array.manifest.job.tasks.size(); ++task) {
      worst = std::max(worst, run_visibly({"bash", array_file(array.manifest, ".sh").string(), fmt::format("{}", task)},
                                          environment.variables));
    }
  }
  return worst == exit_ok ? exit_ok : exit_some_failed;
}

void submit_all(const Submission& submission, const Slurm& slurm) {
  for (const ReadyArray& array : submission.arrays) {
    const std::string script = array_file(array.manifest, ".sh").string();
    const std::string job = slurm.submit(script);
    write_job_id(array.manifest, job);
    say("job {}: {}\n", job, script);
  }
}

}  // namespace

int carry_out(SubmissionRequest request, std::vector<JobArray> arrays, const SubmitOptions& options,
              const Environment& environment) {
  const Slurm slurm(environment.variables);
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
    print_dry(make_submission(request, std::move(arrays), next_submission(folder)), request.site);
    return exit_ok;
  }
  const Submission submission = make_submission(request, std::move(arrays), claim_submission(folder));
  write_submission(submission);
  say("{}site {} of {}\n", to_table(submission), request.site.name, request.site.file);
  if (options.emit) {
    for (const ReadyArray& array : submission.arrays) {
      say("{} {}\n", request.site.has_slurm() ? "sbatch" : "bash", array_file(array.manifest, ".sh").string());
    }
    return exit_ok;
  }
  if (options.test_only) {
    for (const ReadyArray& array : submission.arrays) {
      say("{}\n", slurm.test(array_file(array.manifest, ".sh").string()));
    }
    return exit_ok;
  }
  flush_output();
  if (!request.site.has_slurm()) return run_here(submission, environment);
  submit_all(submission, slurm);
  return exit_ok;
}

}  // namespace strata::harness
