#pragma once

/// @file
/// How an attempt ended, and the small JSON file that says so beside its results. The file exists because rank 0 can
/// die: any rank may write it, and the first ending that is written stays.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace strata::results {

/// The values are those of the HDF5 enum `status_t` of results-schema/ and never change their number.
enum class Status : std::int8_t {
  running = 0,  ///< not ended, or killed before it could say so
  ok = 1,
  oom = 2,                  ///< predicted, device or host memory exceeded
  refused = 3,              ///< a planner or backend cannot honour the request
  timeout = 4,              ///< the job's time limit
  preempted = 5,            ///< the scheduler took the nodes
  hang = 6,                 ///< the watchdog saw no progress
  node_failure = 7,         ///< a node or rank is gone
  communication_error = 8,  ///< a transport reported an error
  wrong_answer = 9,         ///< a check of values failed
  launcher_mismatch = 10,   ///< world size, ranks a node or binaries are not as planned
  bug = 11,                 ///< an invariant of ours is broken
  killed = 12,              ///< a reader's verdict: still `running`, but nobody writes any more
  recording_error = 13,     ///< the results could not be written: disk full, quota, lost file system
  diverged = 14,            ///< the loss, or a value that was to be saved, is not finite
};
inline constexpr int num_statuses = 15;

std::string_view to_string(Status status);
/// @throws UserError listing the accepted words.
Status parse_status(std::string_view text);

/// Who started an attempt, and where: what a sweep's status needs to know without opening its results.
struct AttemptOrigin {
  std::string launch;              ///< of a submission: "<submission>/<array>.<task>.<launch>"; empty: by hand
  std::string job;                 ///< of the scheduler: "<array job>_<task>.<restart>"; empty: none
  std::vector<std::string> nodes;  ///< each once
  bool operator==(const AttemptOrigin&) const = default;
};

/// Content of `<attempt>.status.json`. The heartbeat is the file's modification time, see touch_heartbeat().
struct StatusFile {
  Status status = Status::running;
  std::string message;  ///< empty while running
  int rank = 0;         ///< who wrote it
  std::int64_t pid = 0;
  std::string host;
  std::string time;  ///< ISO 8601 UTC of the writing
  AttemptOrigin origin;
  bool operator==(const StatusFile&) const = default;
};

/// Write @p status with this process's pid and host, atomically (new file, fsync, rename). A status that has ended
/// already is left as it is: the first failure that was named is the one that counts. The origin of the file that is
/// there stays; @p origin is that of a new one. @returns whether the file now holds this call's status.
/// @throws UserError when the folder cannot be written, or holds a file that is no status file.
bool write_status(const std::string& path, Status status, const std::string& message, int rank,
                  const AttemptOrigin& origin = {});

/// @throws UserError when the file is missing or not a status file.
StatusFile read_status(const std::string& path);

/// "I am alive": sets the modification time of the status file to now. A missing file is not an error, since the
/// heartbeat must never end a run.
void touch_heartbeat(const std::string& path) noexcept;

/// Seconds of @p unix_seconds as "2026-01-31T12:34:56.789Z".
std::string to_iso_8601(double unix_seconds);
double unix_seconds_now();

}  // namespace strata::results
