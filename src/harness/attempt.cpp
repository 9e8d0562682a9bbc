#include "harness/attempt.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.hpp"

namespace strata::harness {
namespace {

using results::Status;
namespace fs = std::filesystem;

bool may_be_a_lost_node(Status status) {
  return status == Status::killed || status == Status::preempted || status == Status::hang ||
         status == Status::communication_error;
}

}  // namespace

std::vector<Attempt> read_attempts(const fs::path& point_folder) {
  std::vector<Attempt> attempts;
  std::error_code missing;
  const double now = results::unix_seconds_now();
  for (const auto& entry : fs::directory_iterator(point_folder, missing)) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(".status.json")) continue;
    Attempt attempt;
    std::from_chars(name.data(), name.data() + name.size(), attempt.number);
    try {
      attempt.file = results::read_status(entry.path().string());
    } catch (const UserError& error) {
      attempt.file.status = Status::bug;
      attempt.file.message = error.what();
      attempt.damage = error.what();
    }
    struct stat facts {};
    if (::stat(entry.path().c_str(), &facts) == 0) {
      attempt.last_heartbeat =
          static_cast<double>(facts.st_mtim.tv_sec) + static_cast<double>(facts.st_mtim.tv_nsec) * 1e-9;
      // Of a clock that is ahead it is as little known when the attempt was last alive as of one that is behind.
      attempt.heartbeat_age_seconds = std::abs(now - attempt.last_heartbeat);
    }
    attempts.push_back(std::move(attempt));
  }
  std::sort(attempts.begin(), attempts.end(), [](const Attempt& a, const Attempt& b) { return a.number < b.number; });
  return attempts;
}

Verdict verdict(const Attempt& attempt, const JobView& job) {
  const results::StatusFile& said = attempt.file;
  const bool silent = said.status == Status::running;
  const double limit = job.alive.value_or(true) ? heartbeat_limit_seconds : heartbeat_limit_of_lost_job_seconds;
  if (silent && (attempt.heartbeat_age_seconds < limit || job.alive.value_or(false)) && !job.started_again) {
    return {Status::running, ""};
  }
  if (!silent && !may_be_a_lost_node(said.status)) return {said.status, said.message};
  std::set<std::string> lost = job.lost_nodes;
  if (job.run != nullptr) lost.insert(job.run->lost_nodes.begin(), job.run->lost_nodes.end());
  if (!lost.empty()) {
    return {Status::node_failure, fmt::format("lost {}; {}", fmt::join(lost, ", "),
                                              silent ? "the attempt ended without a word" : said.message)};
  }
  // Slurm ends a job at its limit with the signal of a preemption.
  const bool at_its_limit = job.run != nullptr && job.run->has_signal("USR1") && !job.started_again;
  if (said.status == Status::preempted && at_its_limit) return {Status::timeout, said.message};
  if (!silent && said.status != Status::killed) return {said.status, said.message};
  if (job.run != nullptr) {
    if (job.run->has_signal("USR1")) return {Status::timeout, "the time limit came before the end of a step"};
    if (job.run->has_signal("TERM")) return {Status::preempted, "the job was told to end before the end of a step"};
    const bool outlived_by_its_job = job.run->exit_codes.contains(said.origin.launch);
    if (job.started_again && !outlived_by_its_job)
      return {Status::preempted, "the job was taken away and started again"};
  }
  return {Status::killed,
          silent ? "no sign of life since " + results::to_iso_8601(attempt.last_heartbeat) : said.message};
}

}  // namespace strata::harness
