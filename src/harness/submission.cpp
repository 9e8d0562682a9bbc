#include "harness/submission.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <system_error>
#include <utility>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/read_file.hpp"
#include "harness/job_script.hpp"
#include "harness/whole_file.hpp"
#include "results/file_descriptor.hpp"
#include "results/status.hpp"

namespace strata::harness {
namespace {

namespace fs = std::filesystem;

/// Of a submission's folder until all of it is written: who is killed meanwhile has submitted nothing, and no part of
/// it is taken for the whole.
constexpr const char* unfinished_suffix = ".part";

void make_folders(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) results::throw_file_error((folder / ".").string(), error.value(), "making");
}

/// Of the points that @p array runs.
template <class Value>
std::map<std::string, Value> part_of(const std::map<std::string, Value>& all, const JobArray& array) {
  std::map<std::string, Value> part;
  for (const Task& task : array.tasks) {
    for (const Launch& launch : task.launches) {
      const auto found = all.find(launch.point_id);
      if (found != all.end()) part.insert(*found);
    }
  }
  return part;
}

/// NaN where one of a task's launches is unknown.
std::vector<double> steps_seconds_of_tasks(const JobArray& array, const std::map<std::string, double>& of_points) {
  std::vector<double> seconds;
  for (const Task& task : array.tasks) {
    double sum = 0.0;
    for (const Launch& launch : task.launches) {
      const auto found = of_points.find(launch.point_id);
      sum += found == of_points.end() ? std::numeric_limits<double>::quiet_NaN() : found->second;
    }
    seconds.push_back(sum);
  }
  return seconds;
}

}  // namespace

double Submission::node_hours() const {
  double sum = 0.0;
  for (const ReadyArray& array : arrays) sum += array.manifest.job.node_hours();
  return sum;
}

double Submission::gpu_hours() const {
  double sum = 0.0;
  for (const ReadyArray& array : arrays) sum += array.manifest.job.gpu_hours();
  return sum;
}

std::int64_t Submission::num_launches() const {
  std::int64_t count = 0;
  for (const ReadyArray& array : arrays) {
    for (const Task& task : array.manifest.job.tasks) count += static_cast<std::int64_t>(task.launches.size());
  }
  return count;
}

Submission make_submission(const SubmissionRequest& request, std::vector<JobArray> arrays, int number) {
  Submission submission{
      .number = number, .arrays = {}, .point_files = request.point_files, .left_out = request.left_out};
  std::random_device entropy;
  std::mt19937_64 tokens((std::uint64_t{entropy()} << 32U) | entropy());
  const std::string now = results::to_iso_8601(results::unix_seconds_now());
  for (std::size_t a = 0; a < arrays.size(); ++a) {
    Manifest m{.experiment_name = request.experiment_name,
               .experiment_file = request.experiment_file,
               .results_folder = request.results_folder,
               .site = request.site_name_or_path,
               .has_slurm = request.site.has_slurm(),
               .submission = number,
               .array = static_cast<int>(a),
               .time = now,
               .token = fmt::format("strata-{:016x}", tokens()),
               .job = std::move(arrays[a]),
               .point_axes = {},
               .expects = {}};
    m.point_axes = part_of(request.point_axes, m.job);
    m.expects = part_of(request.expects, m.job);
    std::string script = job_script(m, request.site, request.strata_binary);
    std::vector<double> seconds;
    if (request.has_predictions) seconds = steps_seconds_of_tasks(m.job, request.steps_seconds);
    submission.arrays.push_back({std::move(m), std::move(script), std::move(seconds)});
  }
  return submission;
}

int next_submission(const fs::path& experiment_folder) {
  int last = 0;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(experiment_folder / "submissions", missing)) {
    const std::string name = entry.path().filename().string();
    int number = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (error == std::errc{} && number < INT_MAX) last = std::max(last, number);
  }
  return last + 1;
}

int claim_submission(const fs::path& experiment_folder) {
  const fs::path folder = experiment_folder / "submissions";
  make_folders(folder);
  // Two people may submit at the same time: who makes the folder has the number.
  std::error_code error;
  for (int number = next_submission(experiment_folder);; ++number) {
    const fs::path path = folder / fmt::format("{}", number);
    if (fs::exists(path)) continue;
    if (fs::create_directory(path.string() + unfinished_suffix, error)) return number;
    if (error) results::throw_file_error((folder / ".").string(), error.value(), "making a submission in");
  }
}

void write_submission(const Submission& submission) {
  if (submission.arrays.empty()) return;
  const fs::path folder = submission_folder(submission.arrays.front().manifest);
  const fs::path unfinished = folder.string() + unfinished_suffix;
  make_folders(unfinished / "jobs");
  make_folders(unfinished / "logs");
  make_folders(unfinished / point_files_folder);
  for (const ReadyArray& array : submission.arrays) {
    write_whole(unfinished / array_file(array.manifest, ".sh").filename(), array.script);
    write_whole(unfinished / array_file(array.manifest, ".json").filename(), to_json(array.manifest));
  }
  for (const auto& [point_id, text] : submission.point_files) {
    write_whole(unfinished / point_files_folder / (point_id + ".toml"), text);
  }
  write_left_out(unfinished, submission.left_out);
  results::rename_file(unfinished.string(), folder.string());
}

PointFiles read_point_files(const std::vector<Manifest>& manifests, const std::vector<JobArray>& arrays) {
  std::map<std::string, const Manifest*> last;
  for (const Manifest& manifest : manifests) {
    for (const Task& task : manifest.job.tasks) {
      for (const Launch& launch : task.launches) last[launch.point_id] = &manifest;
    }
  }
  PointFiles files;
  for (const JobArray& array : arrays) {
    for (const Task& task : array.tasks) {
      for (const Launch& launch : task.launches) {
        const auto [at, is_new] = files.try_emplace(launch.point_id);
        if (!is_new) continue;
        const Manifest& manifest = *last.at(launch.point_id);
        fs::path file = submission_folder(manifest) / point_files_folder / (launch.point_id + ".toml");
        // Submissions of earlier versions shared one file a point.
        const fs::path shared = experiment_folder(manifest) / launch.point_id / "point.toml";
        if (!fs::exists(file) && fs::exists(shared)) file = shared;
        at->second = read_file(file.string());
      }
    }
  }
  return files;
}

void write_job_id(const Manifest& manifest, const std::string& job_id) {
  write_whole(array_file(manifest, ".jobid"), job_id + "\n");
}

namespace {

/// A line where strategies meet in blocks: all others are compared with one of them.
std::string blocks_in_words(const Submission& submission) {
  std::int64_t num_comparisons = 0, num_blocks = 0;
  for (const ReadyArray& array : submission.arrays) {
    for (const Task& task : array.manifest.job.tasks) {
      std::set<std::string> rivals;
      std::set<std::int64_t> blocks;
      for (const Launch& launch : task.launches) {
        if (launch.block < 0) continue;
        rivals.insert(launch.point_id);
        blocks.insert(launch.block);
      }
      num_comparisons += std::max<std::int64_t>(0, std::ssize(rivals) - 1);
      num_blocks = std::max<std::int64_t>(num_blocks, std::ssize(blocks));
    }
  }
  if (num_comparisons == 0) return "";
  const int needed = blocks_needed(num_comparisons);
  return fmt::format(
      "{} comparisons with one baseline, corrected by Holm, need {} blocks to be decided, and there {}\n",
      num_comparisons, needed,
      num_blocks >= needed ? fmt::format("are {}", num_blocks)
                           : fmt::format("are only {}: job.blocks = {}", num_blocks, needed));
}

/// "unknown" where that is so of any task.
std::string longest_in_words(const ReadyArray& array) {
  const std::vector<double>& seconds = array.steps_seconds;
  if (std::ranges::any_of(seconds, [](double s) { return std::isnan(s); })) return "unknown";
  return duration_in_words(std::ranges::max(seconds));
}

/// What the steps of all launches take, beside what their jobs may take.
std::string prediction_in_words(const Submission& submission) {
  double node_hours = 0.0;
  std::int64_t num_tasks = 0, num_unknown = 0, num_over = 0;
  double most_over = 0.0;
  std::int64_t its_limit_minutes = 0;
  for (const ReadyArray& array : submission.arrays) {
    const JobGeometry& g = array.manifest.job.geometry;
    const double limit_seconds = 60.0 * static_cast<double>(g.time_limit_minutes);
    for (const double seconds : array.steps_seconds) {
      ++num_tasks;
      if (std::isnan(seconds)) {
        ++num_unknown;
        continue;
      }
      node_hours += seconds / 3600.0 * static_cast<double>(g.nodes);
      if (seconds <= limit_seconds) continue;
      ++num_over;
      if (seconds - limit_seconds < most_over) continue;
      most_over = seconds - limit_seconds;
      its_limit_minutes = g.time_limit_minutes;
    }
  }
  if (num_unknown == num_tasks) return "predicted: nothing, the nodes' costs are unknown here\n";
  std::string text =
      fmt::format("predicted: steps take {:.2f} node-hours at most, beside the start of each launch", node_hours);
  if (num_unknown > 0) text += fmt::format("; unknown of {} of {} tasks", num_unknown, num_tasks);
  text += "\n";
  if (num_over > 0) {
    text += fmt::format("{} of {} tasks are predicted to exceed their time limit, by as much as {} beyond {} min\n",
                        num_over, num_tasks, duration_in_words(most_over), its_limit_minutes);
  }
  return text;
}

}  // namespace

std::string to_table(const Submission& submission) {
  const bool has_predictions = std::ranges::any_of(submission.arrays, &ReadyArray::has_predictions);
  std::vector<std::vector<std::string>> rows = {
      {"array", "tasks", "nodes", "ranks", "launches", "time limit", "node-hours"}};
  if (has_predictions) rows.front().emplace_back("longest steps");
  const JobGeometry* largest = nullptr;
  for (const ReadyArray& array : submission.arrays) {
    const Manifest& m = array.manifest;
    const JobGeometry& g = m.job.geometry;
    std::int64_t launches = 0;
    for (const Task& task : m.job.tasks) launches += static_cast<std::int64_t>(task.launches.size());
    const std::string throttle = m.job.max_running > 0 ? fmt::format(" (at most {} at a time)", m.job.max_running) : "";
    rows.push_back({fmt::format("{}", m.array), fmt::format("{}{}", m.job.tasks.size(), throttle),
                    fmt::format("{}", g.nodes), fmt::format("{}", g.num_ranks()), fmt::format("{}", launches),
                    fmt::format("{} min", g.time_limit_minutes), fmt::format("{:.2f}", m.job.node_hours())});
    if (has_predictions) rows.back().push_back(longest_in_words(array));
    if (largest == nullptr || g.num_ranks() > largest->num_ranks()) largest = &g;
  }
  std::vector<std::size_t> widths(rows.front().size());
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    for (std::size_t i = 0; i + 1 < row.size(); ++i) text += fmt::format("{:<{}}  ", row[i], widths[i]);
    text += row.back() + "\n";
  }
  text += fmt::format("{} arrays, {} launches, at most {:.2f} node-hours, {:.2f} GPU-hours", submission.arrays.size(),
                      submission.num_launches(), submission.node_hours(), submission.gpu_hours());
  if (largest != nullptr) {
    text += fmt::format("; largest job: {} nodes x {} ranks = {} ranks", largest->nodes, largest->ranks_per_node,
                        largest->num_ranks());
  }
  text += "\n";
  if (has_predictions) text += prediction_in_words(submission);
  return text + blocks_in_words(submission);
}

}  // namespace strata::harness
