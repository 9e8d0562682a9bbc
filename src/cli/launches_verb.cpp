/// @file
/// `strata launches`: what a job that starts has to do; its batch script asks.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/console.hpp"
#include "base/error.hpp"
#include "base/exit_code.hpp"
#include "cli/verb.hpp"
#include "harness/job_record.hpp"
#include "harness/manifest.hpp"
#include "harness/slurm.hpp"
#include "harness/sweep_state.hpp"

namespace strata::cli {
namespace {

struct LaunchesArguments {
  std::string manifest;
  std::int64_t task = 0;
  std::string job;
  std::string nodes;
  bool job_ends = false;
};

/// Notes that the job starts, prints what it has to launch. Or, where the job is told to end, notes which of its nodes
/// are down.
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
  const std::vector<std::size_t> left = launches_left(manifest, task, harness::read_job_record(manifest, task));
  std::string text;
  for (std::size_t i = 0; i < left.size(); ++i) {
    const harness::Launch& launch = launches.launches[left[i]];
    const std::string name = launch_name(manifest, task, left[i]);
    if (launches.one_launch && i > 0 && launches.launches[left[i - 1]].block == launch.block) {
      text += fmt::format(" --then {} {} {}", name, launch.point_id, launch.order);
      continue;
    }
    text += fmt::format("{}{} {}", i > 0 ? "\n" : "", name, launch.point_id);
    if (launch.block >= 0) {
      text +=
          fmt::format(" --block {} --block-order {} --block-seed {}", launch.block, launch.order, launches.block_seed);
    }
  }
  if (!text.empty()) say("{}\n", text);
  return exit_ok;
}

void add_launches(const CommandLine& line) {
  const auto arguments = std::make_shared<LaunchesArguments>();
  CLI::App* launches = line.app.add_subcommand("launches", "what a job that starts has to launch")->group("");
  launches->add_option("manifest", arguments->manifest)->required();
  launches->add_option("--task", arguments->task)->required();
  launches->add_option("--job", arguments->job);
  launches->add_option("--nodes", arguments->nodes);
  launches->add_flag("--job-ends", arguments->job_ends);
  launches->callback([line, arguments] { line.exit_code = print_launches(*arguments, line.environment); });
}

}  // namespace

Verb launches_verb() { return {.place = 1200, .add = add_launches}; }

}  // namespace strata::cli
