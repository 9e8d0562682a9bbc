#pragma once

/// @file
/// How far a sweep has come: one row for each point (and block) that was asked for, from manifests, job records and
/// attempt files alone. What Slurm's queue adds comes in as data.

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "harness/attempt.hpp"
#include "harness/manifest.hpp"
#include "harness/slurm.hpp"

namespace strata::harness {

/// `missing`: nobody runs it or is going to. `pending`: a job that may still start it is in the queue. `left_out`: a
/// submission found that it cannot start, and did not queue it.
enum class Progress { missing, pending, running, ended, left_out };

/// Where a launch stands in the manifests.
struct LaunchPlace {
  std::size_t manifest = 0;
  std::size_t task = 0;
  std::size_t launch = 0;
};

/// One point, or one point in one block.
struct Unit {
  std::string point_id;
  std::int64_t block = -1;
  std::string axes;
  LaunchPlace place{};  ///< of the last submission that asks for it; without meaning in `left_out`
  Progress progress = Progress::missing;
  results::Status status = results::Status::running;  ///< of `ended`; of `left_out`: how it would end
  bool expected = false;                              ///< ended as the experiment says it may
  std::string message;
  int num_attempts = 0;
  std::string job;  ///< of the attempt that counts

  bool good() const { return progress == Progress::ended && (status == results::Status::ok || expected); }
  /// "ok", "oom", …, "missing", "pending", "running", "left out (oom)".
  std::string state() const;
};

/// An attempt that could not name its own end, and what its job's record and Slurm say of it.
struct Ending {
  std::string point_id;
  int attempt = 0;
  results::Status status = results::Status::killed;
  std::string message;
};

struct SweepState {
  std::string experiment_name;
  std::vector<Manifest> manifests;
  std::vector<Unit> units;      ///< in the order in which they were first asked for
  std::vector<Ending> endings;  ///< of attempts whose status file says something else
};

/// What Slurm knows; without it, a job that has not ended is taken to be alive while its attempts are.
struct QueueView {
  bool known = false;
  std::vector<QueuedTask> tasks;
  std::set<std::string> lost_nodes;
};

/// @param experiment_folder `<results>/<experiment>`. @throws UserError if nothing was submitted there, or nothing that
/// can be read: a damaged manifest alone is named and left out.
SweepState sweep_state(const std::filesystem::path& experiment_folder, const QueueView& queue);

/// As sweep_state, with manifests that are read already; of none an empty state.
SweepState sweep_state(std::vector<Manifest> manifests, const QueueView& queue);

/// @throws UserError where @p manifests, which were read in @p experiment_folder, are none.
void check_submitted(const std::vector<Manifest>& manifests, const std::filesystem::path& experiment_folder);

/// Keeps @p state's endings in `<experiment_folder>/submissions/endings.json`, where what reads results finds them.
/// What was named a node failure once stays one: the node may be up again. Nothing is written where there is nothing
/// to say.
void record_endings(const std::filesystem::path& experiment_folder, const SweepState& state);

/// Node lists of jobs whose attempts ended in a way that a lost node explains: whom to ask Slurm about.
std::set<std::string> suspect_nodes(const SweepState& state);

/// "24 points: 18 ok, 1 oom, 1 timeout, 4 pending"
std::string summary_line(const SweepState& state);
/// A line a unit. @param colour for a terminal: states green where they are good, red where they are not, plain while
/// that is open.
std::string to_table(const SweepState& state, bool colour);
/// What is wrong, and what was left out: a line a reason, see by_reason(). @param colour as above.
std::string reasons(const SweepState& state, bool colour);

/// Launches of one task that are to be run: those that have no attempt, or one that was taken away (preempted, node
/// failure) in a job that starts again.
std::vector<std::size_t> launches_left(const Manifest& manifest, std::size_t task, const std::vector<JobRun>& record);

/// What a new submission must hold: units that are missing or ended badly, of the classes in @p classes (words of
/// Status, "missing"; empty: all). A task in blocks repeats whole blocks, since half a block compares nothing.
std::vector<JobArray> arrays_to_resume(const SweepState& state, const std::set<std::string>& classes);

}  // namespace strata::harness
