/// @file
/// `strata status`: how far a sweep is. `strata launches`: what a job that starts has to do; its batch script asks.

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/exit_code.hpp"
#include "cli/verbs.hpp"
#include "harness/queue_view.hpp"
#include "harness/slurm.hpp"

namespace strata::cli {
namespace {

bool under_way(const harness::SweepState& state) {
  return std::any_of(state.units.begin(), state.units.end(), [](const harness::Unit& unit) {
    return unit.progress == harness::Progress::pending || unit.progress == harness::Progress::running;
  });
}

int code_of(const harness::SweepState& state) {
  const bool bad = std::any_of(state.units.begin(), state.units.end(), [](const harness::Unit& unit) {
    return unit.progress == harness::Progress::ended && !unit.good();
  });
  return bad ? exit_some_failed : exit_ok;
}

}  // namespace

int show_status(const StatusArguments& arguments, const Environment& environment) {
  // Slurm's controller serves everybody: it is asked every 30 s at first, then ever more seldom.
  std::chrono::seconds pause{30};
  for (;;) {
    const harness::SweepState state = harness::state_with_queue(arguments.results, environment);
    const bool screen = arguments.watch && isatty(STDOUT_FILENO) == 1;
    if (screen) fmt::print("\033[H\033[2J");
    fmt::print("{}{}\n", to_table(state, arguments.all, environment.colour), summary_line(state));
    std::fflush(stdout);
    if (!arguments.watch || !under_way(state)) return code_of(state);
    std::this_thread::sleep_for(pause);
    pause = std::min(pause + pause / 2, std::chrono::seconds{180});
  }
}

int print_launches(const LaunchesArguments& arguments, const Environment& environment) {
  const harness::Manifest manifest = harness::read_manifest(arguments.manifest);
  const auto task = static_cast<std::size_t>(arguments.task);
  if (arguments.task < 0 || task >= manifest.job.tasks.size()) {
    throw UserError(fmt::format("{}: --task {}: accepted: 0 … {}", arguments.manifest, arguments.task,
                                manifest.job.tasks.size() - 1));
  }
  const std::filesystem::path record = job_record_file(manifest, task);
  const std::vector<harness::JobRun> before = harness::read_job_record(manifest, task);
  if (!before.empty() && before.back().was_taken_away() && manifest.has_slurm) {
    // By a node that is down now, or by the scheduler.
    for (const std::string& node : harness::Slurm(environment.variables).lost_nodes(before.back().nodes)) {
      harness::note(record, fmt::format("lost {}", node));
    }
  }
  if (arguments.job_ends) return exit_ok;
  harness::note(record, fmt::format("start {} {}", arguments.job, arguments.nodes));
  const harness::Task& launches = manifest.job.tasks[task];
  for (const std::size_t l : launches_left(manifest, task, harness::read_job_record(manifest, task))) {
    const harness::Launch& launch = launches.launches[l];
    fmt::print("{} {}", launch_name(manifest, task, l), launch.point_id);
    if (launch.block >= 0) {
      fmt::print(" --block {} --block-order {} --block-seed {}", launch.block, launch.order, launches.block_seed);
    }
    fmt::print("\n");
  }
  return exit_ok;
}

}  // namespace strata::cli
