#include "harness/slurm.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <sstream>

#include "base/error.hpp"
#include "harness/command.hpp"

namespace strata::harness {
namespace {

std::string trimmed(std::string text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) text.pop_back();
  return text;
}

/// Of an array of ours, which has a task for each point of a sweep at most, and of all that is queued of one
/// experiment. What says more is not Slurm's word on our jobs.
constexpr std::int64_t most_tasks = 100'000;
constexpr std::size_t most_queued_tasks = 200'000;

std::int64_t number(std::string_view text) {
  std::int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

}  // namespace

std::vector<std::string> submission_environment(const std::vector<std::string>& environment) {
  std::vector<std::string> kept;
  for (const std::string& entry : environment) {
    // SLURM_CONF says where the controller is; the rest describes a job that this submission is not part of.
    const bool of_a_job = entry.starts_with("SLURM") && !entry.starts_with("SLURM_CONF=");
    if (!entry.starts_with("SBATCH_") && !of_a_job) kept.push_back(entry);
  }
  return kept;
}

std::vector<std::int64_t> parse_task_list(std::string_view list) {
  list = list.substr(0, list.find('%'));
  std::vector<std::int64_t> indices;
  while (!list.empty()) {
    const std::string_view part = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), part.size() + 1));
    const std::size_t dash = part.find('-');
    const std::int64_t first = number(part);
    const std::int64_t last = dash == std::string_view::npos ? first : number(part.substr(dash + 1));
    const std::size_t colon = part.find(':');
    const std::int64_t stride = colon == std::string_view::npos ? 1 : number(part.substr(colon + 1));
    if (first < 0 || stride < 1 || stride > most_tasks) continue;
    for (std::int64_t i = first; i <= std::min(last, most_tasks); i += stride) indices.push_back(i);
  }
  return indices;
}

std::vector<QueuedTask> parse_queue(std::string_view squeue_output) {
  std::vector<QueuedTask> tasks;
  std::istringstream lines{std::string(squeue_output)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string id, state, reason;
    words >> id >> state;
    std::getline(words >> std::ws, reason);
    const std::size_t underscore = id.find('_');
    if (underscore == std::string::npos) continue;  // no array of ours
    std::string list = id.substr(underscore + 1);
    if (list.starts_with('[')) list = list.substr(1, list.find(']') - 1);
    for (const std::int64_t task : parse_task_list(list)) {
      if (tasks.size() == most_queued_tasks) return tasks;
      tasks.push_back({id.substr(0, underscore), task, state, trimmed(reason)});
    }
  }
  return tasks;
}

std::map<std::string, std::string> parse_comments(std::string_view squeue_output) {
  std::map<std::string, std::string> jobs;
  std::istringstream lines{std::string(squeue_output)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string id, comment;
    if (words >> id >> comment) jobs.try_emplace(comment, id);
  }
  return jobs;
}

Slurm::Slurm(const std::vector<std::string>& environment) : environment_(submission_environment(environment)) {
  environment_.emplace_back("SLURM_BITSTR_LEN=0");  // task lists are printed whole
}

bool Slurm::available() const { return run_command({"scontrol", "ping"}, environment_).exit_code == 0; }

std::int64_t Slurm::max_array_size() const {
  const CommandResult answer = run_command({"scontrol", "show", "config"}, environment_);
  std::istringstream lines(answer.output);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("MaxArraySize")) return number(line.substr(line.find_first_of("0123456789")));
  }
  throw UserError(fmt::format("`scontrol show config` says nothing of MaxArraySize: {}", trimmed(answer.error)));
}

std::string Slurm::submit(const std::string& script) const {
  const CommandResult answer = run_command({"sbatch", "--parsable", script}, environment_);
  if (answer.exit_code != 0) throw UserError(fmt::format("sbatch {}: {}", script, trimmed(answer.error)));
  const std::string line = trimmed(answer.output);
  return line.substr(0, line.find(';'));  // "id;cluster"
}

std::string Slurm::test(const std::string& script) const {
  const CommandResult answer = run_command({"sbatch", "--test-only", script}, environment_);
  if (answer.exit_code != 0) throw UserError(fmt::format("sbatch --test-only {}: {}", script, trimmed(answer.error)));
  return trimmed(answer.error);
}

std::optional<std::vector<QueuedTask>> Slurm::queue(std::span<const std::string> job_ids) const {
  const CommandResult answer =
      run_command({"squeue", "--noheader", "--format=%i %T %r", "--jobs=" + fmt::format("{}", fmt::join(job_ids, ","))},
                  environment_);
  // A single job that has left the queue long ago is "Invalid job id"; that is an answer.
  if (answer.exit_code != 0 && answer.error.find("Invalid job id") == std::string::npos) return std::nullopt;
  return parse_queue(answer.output);
}

std::optional<std::map<std::string, std::string>> Slurm::jobs_by_comment() const {
  const CommandResult answer =
      run_command({"squeue", "--noheader", "--format=%F %k", fmt::format("--user={}", ::geteuid())}, environment_);
  if (answer.exit_code != 0) return std::nullopt;
  return parse_comments(answer.output);
}

std::set<std::string> Slurm::lost_nodes(const std::string& nodes) const {
  std::set<std::string> lost;
  if (nodes.empty()) return lost;
  const CommandResult answer =
      run_command({"sinfo", "--Node", "--noheader", "--nodes=" + nodes, "--format=%N %T"}, environment_);
  std::istringstream lines(answer.output);
  for (std::string node, state; lines >> node >> state;) {
    if (state.starts_with("down") || state.ends_with('*') || state.starts_with("fail")) lost.insert(node);
  }
  return lost;
}

}  // namespace strata::harness
