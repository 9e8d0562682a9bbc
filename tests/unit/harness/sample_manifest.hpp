#pragma once

/// @file
/// A manifest for the tests of this folder: one task head to head in two blocks, one of a point alone.

#include <filesystem>
#include <fstream>
#include <string>

#include "harness/job_record.hpp"
#include "harness/manifest.hpp"

namespace strata::harness::test {

inline Manifest sample_manifest(const std::string& results_folder) {
  Manifest m;
  m.experiment_name = "sweep";
  m.experiment_file = "/home/me/sweep.toml";
  m.results_folder = results_folder;
  m.site = "slurm";
  m.submission = 3;
  m.array = 1;
  m.time = "2026-01-01T00:00:00.000Z";
  m.job.geometry = {.nodes = 2, .ranks_per_node = 2, .threads_per_rank = 4, .time_limit_minutes = 20};
  m.job.max_running = 2;
  m.job.tasks = {
      {{{"aaaaaaaaaaaa", 0, 0}, {"bbbbbbbbbbbb", 0, 1}, {"bbbbbbbbbbbb", 1, 0}, {"aaaaaaaaaaaa", 1, 1}}, 7, true},
      {{{"cccccccccccc", -1, 0}}, 0}};
  m.point_axes = {{"aaaaaaaaaaaa", "strategy.name=\"ddp\""}, {"cccccccccccc", "train.seed=3"}};
  m.expects = {{"cccccccccccc", {"oom"}}};
  return m;
}

/// Writes the manifest where it belongs.
inline void put(const Manifest& manifest) {
  std::filesystem::create_directories(submission_folder(manifest) / "jobs");
  std::ofstream(array_file(manifest, ".json")) << to_json(manifest);
}

/// An attempt of launch (@p task, @p launch) with @p status, as a run of @p job would have left it.
inline void put_attempt(const Manifest& m, std::size_t task, std::size_t launch, int number, const std::string& status,
                        const std::string& job = "17_0.0") {
  const std::filesystem::path folder = experiment_folder(m) / m.job.tasks[task].launches[launch].point_id;
  std::filesystem::create_directories(folder);
  std::ofstream(folder / (std::to_string(number) + ".status.json"))
      << R"({"status": ")" << status
      << R"(", "message": "so it ended", "rank": 0, "pid": 1, "host": "n1", "time": "t", )"
      << R"("launch": ")" << launch_name(m, task, launch) << R"(", "job": ")" << job << R"(", "nodes": ["n1", "n2"]})";
}

inline void put_record(const Manifest& m, std::size_t task, const std::string& lines) {
  std::ofstream(job_record_file(m, task)) << lines;
}

}  // namespace strata::harness::test
