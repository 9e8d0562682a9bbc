#pragma once

/// @file
/// What a batch script noted about its job, one line an event: it starts (again, after a requeue), a signal comes, a
/// launch begins and ends. The only witness of a job that was taken away.

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "harness/manifest.hpp"

namespace strata::harness {

/// From one start of the job to the next.
struct JobRun {
  std::string job;                        ///< "<array job>_<task>.<restart>"
  std::string nodes;                      ///< Slurm's node list
  std::set<std::string> lost_nodes;       ///< of `nodes`, seen to be down when the job started again
  std::vector<std::string> signals;       ///< "USR1", "TERM"
  std::vector<std::string> launched;      ///< names of launches
  std::map<std::string, int> exit_codes;  ///< by launch
  bool ended = false;                     ///< the script came to its end
  bool operator==(const JobRun&) const = default;
};

/// Lines "<time> start <job> <nodes>", "lost <node>", "signal USR1", "launch <name>", "exit <name> <code>", "end"; each
/// behind its time. A line that is cut off, of a script that was killed, is passed over.
std::vector<JobRun> parse_job_record(std::string_view text);

/// `<submission folder>/jobs/<array>.<task>.log`
std::filesystem::path job_record_file(const Manifest& manifest, std::size_t task);
/// Empty if the job has not started.
std::vector<JobRun> read_job_record(const Manifest& manifest, std::size_t task);
/// Append a line, with the time before it. @throws UserError if it cannot be written.
void note(const std::filesystem::path& record, const std::string& event);

}  // namespace strata::harness
