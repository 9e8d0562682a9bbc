#include "harness/sweep_state.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/one_line.hpp"
#include "harness/colours.hpp"
#include "harness/left_out.hpp"
#include "harness/read_at_once.hpp"
#include "harness/reasons.hpp"
#include "harness/whole_file.hpp"

namespace strata::harness {
namespace {

using results::Status;
namespace fs = std::filesystem;

/// Attempts of the points that some launches run, read once and all at once.
class AttemptsByLaunch {
 public:
  AttemptsByLaunch(const fs::path& experiment_folder, const std::vector<const Task*>& tasks) {
    std::vector<std::pair<const std::string, std::vector<Attempt>>*> points;
    for (const Task* task : tasks) {
      for (const Launch& launch : task->launches) {
        const auto [at, is_new] = read_.try_emplace(launch.point_id);
        if (is_new) points.push_back(&*at);
      }
    }
    read_at_once(points.size(),
                 [&](std::size_t p) { points[p]->second = read_attempts(experiment_folder / points[p]->first); });
    for (const auto* point : points) {
      for (const Attempt& attempt : point->second) {
        // It does not say whose launch it was.
        if (!attempt.damage.empty()) warn_of_damage(UserError(attempt.damage));
      }
    }
  }

  /// Those of launch @p name; @p name empty: those started by hand.
  std::vector<const Attempt*> of(const std::string& point_id, const std::string& name) const {
    std::vector<const Attempt*> found;
    for (const Attempt& attempt : read_.at(point_id)) {
      if (attempt.file.origin.launch == name) found.push_back(&attempt);
    }
    return found;
  }

 private:
  std::map<std::string, std::vector<Attempt>> read_;
};

/// The run of the job in which @p attempt was made, and what came after.
JobView view_of(const Attempt& attempt, const std::vector<JobRun>& record, std::optional<bool> alive,
                const std::set<std::string>& lost_nodes) {
  JobView view;
  view.alive = alive;
  for (std::size_t r = 0; r < record.size(); ++r) {
    if (record[r].job != attempt.file.origin.job) continue;
    view.run = &record[r];
    view.started_again = r + 1 < record.size();
  }
  for (const std::string& node : attempt.file.origin.nodes) {
    if (lost_nodes.contains(node)) view.lost_nodes.insert(node);
  }
  return view;
}

/// What one launch of one manifest has come to.
struct LaunchState {
  Progress progress = Progress::missing;
  Verdict ending;
  int num_attempts = 0;
  std::string job;
};

/// A launch that ended with nothing on record: bad input, or a launcher that started something else.
std::optional<Verdict> unrecorded_ending(const std::vector<JobRun>& record, const std::string& name) {
  for (auto run = record.rbegin(); run != record.rend(); ++run) {
    const auto code = run->exit_codes.find(name);
    if (code == run->exit_codes.end()) continue;
    if (code->second == 0) return std::nullopt;
    const std::string message =
        fmt::format("exit code {} before anything was recorded; the job's output says why", code->second);
    if (!run->lost_nodes.empty()) {
      return Verdict{Status::node_failure, fmt::format("lost {}; {}", fmt::join(run->lost_nodes, ", "), message)};
    }
    if (run->has_signal("USR1")) return Verdict{Status::timeout, "the time limit came before anything was recorded"};
    if (run->has_signal("TERM")) return Verdict{Status::preempted, message};
    // 2 and 3: what was asked for cannot be had; 70: our bug; anything else: it did not get as far as to know.
    if (code->second == 2 || code->second == 3) return Verdict{Status::refused, message};
    return Verdict{code->second == 70 ? Status::bug : Status::killed, message};
  }
  return std::nullopt;
}

/// Ends that the scheduler mends by itself when it starts the job again.
bool was_taken_away(Status status) { return status == Status::preempted || status == Status::node_failure; }

class StateOfLaunches {
 public:
  StateOfLaunches(const std::vector<Manifest>& manifests, const QueueView& queue)
      : manifests_(manifests), queue_(queue) {
    for (const QueuedTask& task : queue.tasks) queued_[{task.job_id, task.task}] = &task;
    jobs_.reserve(manifests.size());
    for (const Manifest& manifest : manifests) jobs_.push_back(jobs_of(manifest));
  }

  LaunchState operator()(const LaunchPlace& place, const AttemptsByLaunch& attempts) {
    const Manifest& manifest = manifests_[place.manifest];
    const Launch& launch = manifest.job.tasks[place.task].launches[place.launch];
    const Job& job = jobs_[place.manifest][place.task];
    const std::string name = launch_name(manifest, place.task, place.launch);
    LaunchState state;
    const std::vector<const Attempt*> made = attempts.of(launch.point_id, name);
    state.num_attempts = static_cast<int>(made.size());
    const bool job_may_start_it = job.queued || (!queue_.known && job.submitted && !job.has_ended());
    if (made.empty()) {
      const auto unrecorded = unrecorded_ending(job.record, name);
      if (unrecorded && !(was_taken_away(unrecorded->status) && job_may_start_it)) {
        state.progress = Progress::ended;
        state.ending = *unrecorded;
      } else if (job_may_start_it) {
        state.progress = Progress::pending;
      }
      return state;
    }
    // The last attempt speaks, but one that is good is never overruled.
    for (const Attempt* attempt : made) {
      const Verdict v = verdict(
          *attempt,
          view_of(*attempt, job.record, queue_.known ? std::optional(job.running) : std::nullopt, queue_.lost_nodes));
      if (state.progress == Progress::ended && state.ending.status == Status::ok) break;
      state.progress = v.status == Status::running ? Progress::running : Progress::ended;
      state.ending = v;
      state.job = attempt->file.origin.job;
      if (v.status != Status::running && v.status != attempt->file.status) {
        endings.push_back({launch.point_id, attempt->number, v.status, v.message});
      }
    }
    // Taken away, and the job waits to start again.
    if (state.progress == Progress::ended && was_taken_away(state.ending.status) && queue_.known && job.queued) {
      state.progress = Progress::pending;
      state.ending.message =
          fmt::format("{}, waits to start again: {}", results::to_string(state.ending.status), state.ending.message);
    }
    return state;
  }

  std::vector<Ending> endings;  ///< found so far

 private:
  struct Job {
    std::vector<JobRun> record;
    bool submitted = false;
    bool queued = false;
    bool running = false;
    bool has_ended() const { return !record.empty() && record.back().ended; }
  };

  /// By task.
  std::vector<Job> jobs_of(const Manifest& manifest) const {
    const std::string id = read_job_id(manifest);
    std::vector<Job> jobs(manifest.job.tasks.size());
    read_at_once(jobs.size(), [&](std::size_t task) {
      Job& job = jobs[task];
      job.record = read_job_record(manifest, task);
      job.submitted = !id.empty() || !job.record.empty();
      const auto queued = queued_.find({id, static_cast<std::int64_t>(task)});
      job.queued = queued != queued_.end();
      job.running = job.queued && queued->second->is_running();
    });
    return jobs;
  }

  const std::vector<Manifest>& manifests_;
  const QueueView& queue_;
  std::map<std::pair<std::string, std::int64_t>, const QueuedTask*> queued_;
  std::vector<std::vector<Job>> jobs_;  ///< by manifest and task
};

/// Which of two launches of one unit tells more: a good one, then one under way, then the later one.
bool tells_more(const LaunchState& candidate, const LaunchState& present, bool candidate_good, bool present_good) {
  if (present_good || candidate_good) return !present_good;
  const auto under_way = [](const LaunchState& s) {
    return s.progress == Progress::running || s.progress == Progress::pending;
  };
  if (under_way(present) && !under_way(candidate)) return false;
  return candidate.progress != Progress::missing || present.progress == Progress::missing;
}

}  // namespace

std::string Unit::state() const {
  switch (progress) {
    case Progress::missing: return "missing";
    case Progress::pending: return "pending";
    case Progress::running: return "running";
    case Progress::left_out: return fmt::format("left out ({})", results::to_string(status));
    case Progress::ended: break;
  }
  return std::string(results::to_string(status));
}

SweepState sweep_state(std::vector<Manifest> manifests, const QueueView& queue) {
  SweepState sweep;
  sweep.manifests = std::move(manifests);
  if (sweep.manifests.empty()) return sweep;
  sweep.experiment_name = sweep.manifests.front().experiment_name;
  std::vector<const Task*> tasks;
  for (const Manifest& manifest : sweep.manifests) {
    for (const Task& task : manifest.job.tasks) tasks.push_back(&task);
  }
  const AttemptsByLaunch attempts(experiment_folder(sweep.manifests.front()), tasks);
  StateOfLaunches state_of(sweep.manifests, queue);
  std::map<std::pair<std::string, std::int64_t>, std::size_t> unit_at;
  std::vector<LaunchState> kept;
  for (std::size_t m = 0; m < sweep.manifests.size(); ++m) {
    const Manifest& manifest = sweep.manifests[m];
    for (std::size_t t = 0; t < manifest.job.tasks.size(); ++t) {
      const auto& launches = manifest.job.tasks[t].launches;
      for (std::size_t l = 0; l < launches.size(); ++l) {
        const LaunchPlace place{m, t, l};
        const LaunchState state = state_of(place, attempts);
        const auto [at, is_new] = unit_at.try_emplace({launches[l].point_id, launches[l].block}, sweep.units.size());
        if (is_new) {
          sweep.units.push_back({.point_id = launches[l].point_id, .block = launches[l].block});
          const auto axes = manifest.point_axes.find(launches[l].point_id);
          if (axes != manifest.point_axes.end()) sweep.units.back().axes = axes->second;
          kept.emplace_back();
        }
        Unit& unit = sweep.units[at->second];
        unit.place = place;
        unit.num_attempts += state.num_attempts;
        const auto expects = manifest.expects.find(unit.point_id);
        const auto is_expected = [&](Status status) {
          return expects != manifest.expects.end() && std::find(expects->second.begin(), expects->second.end(),
                                                                results::to_string(status)) != expects->second.end();
        };
        const bool good = state.progress == Progress::ended &&
                          (state.ending.status == Status::ok || is_expected(state.ending.status));
        if (!is_new && !tells_more(state, kept[at->second], good, unit.good())) continue;
        kept[at->second] = state;
        unit.progress = state.progress;
        unit.status = state.ending.status;
        unit.expected = is_expected(state.ending.status);
        unit.message = state.ending.message;
        unit.job = state.job;
      }
    }
  }
  sweep.endings = std::move(state_of.endings);
  std::set<std::string> asked_for;
  for (const Unit& unit : sweep.units) asked_for.insert(unit.point_id);
  for (const LeftOutPoint& point : read_left_out(experiment_folder(sweep.manifests.front()))) {
    if (asked_for.contains(point.point_id)) continue;  // another submission queued it all the same
    sweep.units.push_back({.point_id = point.point_id,
                           .axes = point.axes,
                           .progress = Progress::left_out,
                           .status = point.status,
                           .message = point.message});
  }
  return sweep;
}

void check_submitted(const std::vector<Manifest>& manifests, const fs::path& experiment_folder) {
  if (!manifests.empty()) return;
  std::error_code missing;
  const fs::directory_iterator submissions(experiment_folder / "submissions", missing);
  if (submissions != fs::directory_iterator()) {
    throw UserError(fmt::format("{}: what was submitted here cannot be read", experiment_folder.string()));
  }
  throw UserError(fmt::format("{}: nothing was submitted here; `strata submit` makes {}/submissions",
                              experiment_folder.string(), experiment_folder.string()));
}

SweepState sweep_state(const fs::path& experiment_folder, const QueueView& queue) {
  std::vector<Manifest> manifests = read_manifests(experiment_folder);
  check_submitted(manifests, experiment_folder);
  return sweep_state(std::move(manifests), queue);
}

std::set<std::string> suspect_nodes(const SweepState& state) {
  std::set<std::pair<std::size_t, std::size_t>> of_bad_units;  // manifest and task
  for (const Unit& unit : state.units) {
    if (unit.progress == Progress::ended && !unit.good()) of_bad_units.emplace(unit.place.manifest, unit.place.task);
  }
  const std::vector<std::pair<std::size_t, std::size_t>> tasks(of_bad_units.begin(), of_bad_units.end());
  std::vector<std::vector<JobRun>> records(tasks.size());
  read_at_once(tasks.size(),
               [&](std::size_t t) { records[t] = read_job_record(state.manifests[tasks[t].first], tasks[t].second); });
  std::set<std::string> lists;
  for (const std::vector<JobRun>& record : records) {
    for (const JobRun& run : record) {
      if (!run.nodes.empty()) lists.insert(run.nodes);
    }
  }
  return lists;
}

namespace {

/// Nobody runs it, or it has ended badly.
bool is_wrong(const Unit& unit) {
  return unit.progress == Progress::missing || (unit.progress == Progress::ended && !unit.good());
}

}  // namespace

std::string summary_line(const SweepState& state) {
  std::map<std::string, int> counts;
  std::set<std::string> points;
  for (const Unit& unit : state.units) {
    points.insert(unit.point_id);
    ++counts[unit.good() && unit.status != Status::ok ? unit.state() + " (expected)" : unit.state()];
  }
  const bool blocks = points.size() != state.units.size();
  std::string line = fmt::format("{}: {} points", state.experiment_name, points.size());
  if (blocks) line += fmt::format(", {} launches", state.units.size());
  std::string separator = ": ";
  // Good news first.
  if (counts.contains("ok")) {
    line += fmt::format("{}{} ok", separator, counts["ok"]);
    separator = ", ";
    counts.erase("ok");
  }
  for (const auto& [word, count] : counts) {
    line += fmt::format("{}{} {}", separator, count, word);
    separator = ", ";
  }
  return line;
}

std::string to_table(const SweepState& state, bool colour) {
  std::vector<std::string_view> colours = {plain};
  std::vector<std::array<std::string, 5>> rows = {{"point", "state", "tries", "job", "axes"}};
  for (const Unit& unit : state.units) {
    const std::string block = unit.block < 0 ? "" : fmt::format(" block {}", unit.block);
    const std::string message = unit.message.empty() ? "" : "  " + printable(one_line(unit.message));
    rows.push_back({unit.point_id, unit.state(), fmt::format("{}", unit.num_attempts),
                    unit.job.empty() ? "-" : unit.job, unit.axes + block + message});
    colours.push_back(unit.good() ? green : is_wrong(unit) ? red : plain);
  }
  std::array<std::size_t, 5> widths{};
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const auto& row = rows[r];
    for (std::size_t i = 0; i + 1 < row.size(); ++i) {
      const bool coloured = colour && i == 1 && !colours[r].empty();
      if (coloured) text += colours[r];
      text += fmt::format("{:<{}}", row[i], widths[i]);
      if (coloured) text += end_of_colour;
      text += "  ";
    }
    text += row.back() + "\n";
  }
  return text;
}

std::string reasons(const SweepState& state, bool colour) {
  std::vector<Complaint> complaints;
  for (const Unit& unit : state.units) {
    const bool left_out = unit.progress == Progress::left_out;
    if (!is_wrong(unit) && !left_out) continue;
    complaints.push_back(
        {.state = unit.state(),
         .message = unit.progress == Progress::missing ? "nobody runs it: `strata resume` submits it" : unit.message,
         .point_id = unit.point_id,
         .block = unit.block,
         .is_bad = !left_out});
  }
  return by_reason(complaints, colour, "--all lists every point");
}

std::vector<std::size_t> launches_left(const Manifest& manifest, std::size_t task, const std::vector<JobRun>& record) {
  const AttemptsByLaunch attempts(experiment_folder(manifest), {&manifest.job.tasks[task]});
  std::vector<std::size_t> left;
  const auto& launches = manifest.job.tasks[task].launches;
  for (std::size_t l = 0; l < launches.size(); ++l) {
    const std::string name = launch_name(manifest, task, l);
    const std::vector<const Attempt*> made = attempts.of(launches[l].point_id, name);
    if (made.empty()) {
      const auto unrecorded = unrecorded_ending(record, name);
      if (!unrecorded || was_taken_away(unrecorded->status)) left.push_back(l);
      continue;
    }
    JobView view = view_of(*made.back(), record, false, {});
    view.started_again = true;  // this job starts now: whatever has not ended by itself was taken away
    if (was_taken_away(verdict(*made.back(), view).status)) left.push_back(l);
  }
  return left;
}

std::vector<JobArray> arrays_to_resume(const SweepState& state, const std::set<std::string>& classes) {
  std::set<std::pair<std::string, std::int64_t>> wanted;
  for (const Unit& unit : state.units) {
    if (is_wrong(unit) && (classes.empty() || classes.contains(unit.state())))
      wanted.insert({unit.point_id, unit.block});
  }
  // The last submission that asks for a unit says how it is run; geometries of old arrays are kept apart as they were.
  std::map<std::pair<std::string, std::int64_t>, std::pair<std::size_t, std::size_t>> last_task;
  for (const Unit& unit : state.units) {
    if (unit.progress == Progress::left_out) continue;
    last_task[{unit.point_id, unit.block}] = {unit.place.manifest, unit.place.task};
  }
  std::vector<JobArray> arrays;
  std::map<JobGeometry, std::size_t> array_at;
  for (std::size_t m = 0; m < state.manifests.size(); ++m) {
    const JobArray& old = state.manifests[m].job;
    for (std::size_t t = 0; t < old.tasks.size(); ++t) {
      Task task;
      task.block_seed = old.tasks[t].block_seed;
      task.one_launch = old.tasks[t].one_launch;
      std::set<std::int64_t> blocks;
      for (const Launch& launch : old.tasks[t].launches) {
        const std::pair key{launch.point_id, launch.block};
        if (wanted.contains(key) && last_task.at(key) == std::pair{m, t}) {
          blocks.insert(launch.block);
          if (launch.block < 0) task.launches.push_back(launch);
        }
      }
      for (const Launch& launch : old.tasks[t].launches) {
        if (launch.block >= 0 && blocks.contains(launch.block)) task.launches.push_back(launch);
      }
      if (task.launches.empty()) continue;
      const auto [at, is_new] = array_at.try_emplace(old.geometry, arrays.size());
      if (is_new) arrays.push_back({.geometry = old.geometry, .tasks = {}, .max_running = old.max_running});
      JobArray& array = arrays[at->second];
      array.max_running = std::max(array.max_running, old.max_running);
      array.tasks.push_back(std::move(task));
    }
  }
  return arrays;
}

}  // namespace strata::harness
