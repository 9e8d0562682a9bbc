#pragma once

/// @file
/// What became of an attempt. Its own status file says so where it could still speak; what it could not know (that the
/// whole job was taken away, and by whom) is concluded here from the job's record.

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "harness/job_record.hpp"
#include "results/status.hpp"

namespace strata::harness {

struct Attempt {
  int number = 0;
  results::StatusFile file;
  double heartbeat_age_seconds = 0.0;
  double last_heartbeat = 0.0;  ///< unix seconds
  std::string damage{};         ///< why its status file cannot be read; empty: it was
};

/// Attempts of one point, by number. A status file that cannot be read counts as a bug, with the reason as message;
/// nothing is said of it, since several threads may read.
std::vector<Attempt> read_attempts(const std::filesystem::path& point_folder);

/// Silent for longer than this, an attempt that says `running` is over: six heartbeats; two where its job is known to
/// be gone.
inline constexpr double heartbeat_limit_seconds = 30.0;
inline constexpr double heartbeat_limit_of_lost_job_seconds = 10.0;

/// What is known of the job an attempt belongs to.
struct JobView {
  const JobRun* run = nullptr;       ///< in which the attempt ran; null: no batch job
  bool started_again = false;        ///< a later run of the job exists
  std::optional<bool> alive;         ///< in Slurm's queue as running; nothing: nobody could be asked
  std::set<std::string> lost_nodes;  ///< down now
};

struct Verdict {
  results::Status status = results::Status::ok;
  std::string message;
};

/// In this order:
/// - an ending that the attempt named itself stands, unless a node of its job is lost and the ending is of the kind
///   that a lost node causes (killed, preempted, hang, communication error): node_failure;
/// - a heartbeat, or a job that still runs, means running;
/// - what ended without a word in a job that had USR1 is a timeout; in one that had TERM, or that was taken
///   away before the attempt ended and started again, preempted; else killed.
Verdict verdict(const Attempt& attempt, const JobView& job);

}  // namespace strata::harness
