#include "harness/submission.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <climits>
#include <set>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "harness/job_script.hpp"
#include "harness/whole_file.hpp"
#include "results/file_descriptor.hpp"
#include "results/status.hpp"

namespace strata::harness {
namespace {

namespace fs = std::filesystem;

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
  Submission submission{.number = number, .arrays = {}};
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
               .job = std::move(arrays[a]),
               .point_axes = {},
               .expects = {}};
    m.point_axes = part_of(request.point_axes, m.job);
    m.expects = part_of(request.expects, m.job);
    std::string script = job_script(m, request.site, request.strata_binary);
    submission.arrays.push_back({std::move(m), std::move(script)});
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
    if (fs::create_directory(folder / fmt::format("{}", number), error)) return number;
    if (error) results::throw_file_error((folder / ".").string(), error.value(), "making a submission in");
  }
}

void write_submission(const Submission& submission) {
  for (const ReadyArray& array : submission.arrays) {
    make_folders(submission_folder(array.manifest) / "jobs");
    make_folders(submission_folder(array.manifest) / "logs");
    write_whole(array_file(array.manifest, ".sh"), array.script);
    write_whole(array_file(array.manifest, ".json"), to_json(array.manifest));
  }
}

void write_point_files(const fs::path& experiment_folder, const std::vector<Point>& points) {
  for (const Point& point : points) {
    make_folders(experiment_folder / point.id);
    write_whole(experiment_folder / point.id / "point.toml", to_text(point.experiment));
  }
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

}  // namespace

std::string to_table(const Submission& submission) {
  std::vector<std::array<std::string, 7>> rows = {
      {"array", "tasks", "nodes", "ranks", "launches", "time limit", "node-hours"}};
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
    if (largest == nullptr || g.num_ranks() > largest->num_ranks()) largest = &g;
  }
  std::array<std::size_t, 7> widths{};
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
  return text + "\n" + blocks_in_words(submission);
}

}  // namespace strata::harness
