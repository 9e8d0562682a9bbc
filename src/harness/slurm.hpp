#pragma once

/// @file
/// What Slurm is asked and told. It is a hint beside our own files: every answer may be missing.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace strata::harness {

/// A task of an array that is still in Slurm's queue.
struct QueuedTask {
  std::string job_id;  ///< of the array
  std::int64_t task = 0;
  std::string state;   ///< PENDING, RUNNING, COMPLETING, …
  std::string reason;  ///< why it waits
  bool operator==(const QueuedTask&) const = default;
  bool is_running() const { return state == "RUNNING" || state == "COMPLETING"; }
};

class Slurm {
 public:
  /// @param environment what its commands get, "NAME=value" each. SBATCH_* in it is left out, since it would change a
  /// script's options behind the user's back, and so is what a job has of SLURM_*.
  explicit Slurm(const std::vector<std::string>& environment);

  /// Slurm's commands are there and a controller answers.
  bool available() const;
  /// Tasks an array may have. @throws UserError if it is not available.
  std::int64_t max_array_size() const;
  /// @return the job id. @throws UserError with Slurm's words.
  std::string submit(const std::string& script) const;
  /// What Slurm would do with the script; it is not submitted. @throws UserError with Slurm's words.
  std::string test(const std::string& script) const;
  /// What of these jobs is in the queue; nothing where Slurm does not answer. One question for all.
  std::optional<std::vector<QueuedTask>> queue(std::span<const std::string> job_ids) const;
  /// This user's jobs in the queue, array ids by comment; nothing where Slurm does not answer.
  std::optional<std::map<std::string, std::string>> jobs_by_comment() const;
  /// Those of @p nodes (a Slurm node list) that are down or do not answer.
  std::set<std::string> lost_nodes(const std::string& nodes) const;

 private:
  std::vector<std::string> environment_;
};

/// @p environment without what changes the options of a submission.
std::vector<std::string> submission_environment(const std::vector<std::string>& environment);

/// Lines "17_[2-5,8%2] PENDING Resources" or "17_3 RUNNING None": a waiting array stands in one line.
std::vector<QueuedTask> parse_queue(std::string_view squeue_output);

/// Lines "17 strata-0123", an array's id and its comment.
std::map<std::string, std::string> parse_comments(std::string_view squeue_output);

/// Indices of "2-5,8%2" and "0-8:4".
std::vector<std::int64_t> parse_task_list(std::string_view list);

}  // namespace strata::harness
