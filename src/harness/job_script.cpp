/// @file
/// The script in three parts: what Slurm reads, what the site asks for, and jobscripts/templates/array_task.sh, the
/// loop over the task's launches.

#include "harness/job_script.hpp"

#include <fmt/format.h>

#include <cctype>
#include <filesystem>
#include <string_view>

#include "base/error.hpp"
#include "base/one_line.hpp"
#include "harness/array_task.hpp"

namespace strata::harness {
namespace {

/// For bash: in single quotes.
std::string shell_word(std::string_view text) {
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'') {
      result += "'\\''";
    } else {
      result += c;
    }
  }
  return result + "'";
}

/// Slurm splits its lines at blanks, ends them at a `#`, reads `\` and quotes in its own way, and has no way to say
/// that it should not.
std::string directive(const std::string& words) {
  for (const char c : words) {
    if (std::iscntrl(static_cast<unsigned char>(c)) == 0 &&
        std::string_view(" \"'#\\").find(c) == std::string_view::npos) {
      continue;
    }
    throw UserError(
        fmt::format("#SBATCH {}: blanks, quotes, #, \\ and control characters cannot stand in a directive of Slurm's",
                    one_line(words)));
  }
  return "#SBATCH " + words + "\n";
}

/// A path in which Slurm shall put nothing in the place of a `%` and the letter behind it.
std::string literal(const std::string& path) {
  std::string result;
  for (const char c : path) result += c == '%' ? "%%" : std::string(1, c);
  return result;
}

std::string directives(const Manifest& m, const Site& site) {
  const JobGeometry& g = m.job.geometry;
  const std::size_t last = m.job.tasks.size() - 1;
  const std::string throttle = m.job.max_running > 0 ? fmt::format("%{}", m.job.max_running) : "";
  std::string text;
  text += directive(fmt::format("--job-name={}-{}", m.experiment_name, m.array));
  if (!m.token.empty()) text += directive("--comment=" + m.token);
  text += directive(last == 0 ? fmt::format("--array=0{}", throttle) : fmt::format("--array=0-{}{}", last, throttle));
  text += directive(fmt::format("--nodes={}", g.nodes));
  text += directive(fmt::format("--ntasks-per-node={}", g.ranks_per_node));
  text += directive(fmt::format("--cpus-per-task={}", g.threads_per_rank));
  if (g.gpus_per_node > 0) text += directive(fmt::format("--gpus-per-node={}", g.gpus_per_node));
  text += directive(fmt::format("--time={}", g.time_limit_minutes));
  if (!g.partition.empty()) text += directive("--partition=" + g.partition);
  if (!site.account.empty()) text += directive("--account=" + site.account);
  if (!site.qos.empty()) text += directive("--qos=" + site.qos);
  if (!g.constraint.empty()) text += directive("--constraint=" + g.constraint);
  if (site.exclusive) text += directive("--exclusive");
  text += directive(fmt::format("--signal=B:USR1@{}", site.time_limit_margin_seconds));
  text += directive("--requeue");
  text += directive("--open-mode=append");
  text += directive(fmt::format("--output={}/%x-%A_%a.out", literal((submission_folder(m) / "logs").string())));
  for (const std::string& words : site.directives) text += directive(words);
  return text;
}

std::string launch_line(const JobGeometry& g, const Site& site) {
  if (!site.has_slurm()) return fmt::format("{} -n {}", site.launcher, g.num_ranks());
  std::string line = fmt::format("{} --nodes={} --ntasks={} --ntasks-per-node={} --cpus-per-task={}", site.launcher,
                                 g.nodes, g.num_ranks(), g.ranks_per_node, g.threads_per_rank);
  if (g.gpus_per_node > 0) line += fmt::format(" --gpus-per-node={}", g.gpus_per_node);
  if (!site.cpu_bind.empty()) line += fmt::format(" --cpu-bind={}", site.cpu_bind);
  return line;
}

}  // namespace

std::string job_script(const Manifest& m, const Site& site, const std::string& strata_binary) {
  const JobGeometry& g = m.job.geometry;
  std::string text = "#!/bin/bash\n";
  if (site.has_slurm()) text += directives(m, site);
  text +=
      fmt::format("# Array {} of submission {} of {}: {} tasks on {} nodes x {} ranks x {} threads.\n", m.array,
                  m.submission, m.experiment_name, m.job.tasks.size(), g.nodes, g.ranks_per_node, g.threads_per_rank);
  text += site.has_slurm()
              ? fmt::format("# To submit it by hand: sbatch {}\n", array_file(m, ".sh").string())
              : fmt::format("# To run one of its tasks by hand: bash {} TASK\n", array_file(m, ".sh").string());
  text += "\nset -u\n";
  text += fmt::format("strata={}\n", shell_word(strata_binary));
  text += fmt::format("manifest={}\n", shell_word(array_file(m, ".json").string()));
  text += fmt::format("experiment_file={}\n", shell_word(m.experiment_file));
  text += fmt::format("results={}\n", shell_word(m.results_folder));
  text += fmt::format("points={}\n", shell_word((submission_folder(m) / point_files_folder).string()));
  if (site.has_slurm()) {
    text += "task=${SLURM_ARRAY_TASK_ID:?submit this script with sbatch}\n";
    text += "job=${SLURM_ARRAY_JOB_ID}_$task.${SLURM_RESTART_COUNT:-0}\n";
  } else {
    text += "task=${1:?the number of a task}\n";
    text += "job=$(hostname)-$$_$task.0\n";
  }
  text += fmt::format("record={}/{}.$task.log\n", shell_word((submission_folder(m) / "jobs").string()), m.array);
  text += fmt::format("launcher={}\n", shell_word(launch_line(g, site)));
  text += fmt::format("export OMP_NUM_THREADS={}\n", g.threads_per_rank);
  for (const auto& [name, value] : site.environment) text += fmt::format("export {}={}\n", name, shell_word(value));
  for (const std::string& module : site.modules) text += fmt::format("module load {}\n", shell_word(module));
  for (const std::string& line : site.setup) text += line + "\n";
  text += array_task_script;
  return text;
}

}  // namespace strata::harness
