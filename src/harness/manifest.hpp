#pragma once

/// @file
/// What one array was asked to do, as a JSON file beside its script. Manifests and attempt files are the truth about a
/// sweep; Slurm is only asked what is still in its queue.
///
/// `<results>/<experiment>/submissions/<n>/array-<a>.json`, `.sh`, and, once submitted, `.jobid`; beside them the
/// points' own experiment files, `points/<id>.toml`.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "harness/job_array.hpp"

namespace strata::harness {

struct Manifest {
  std::string experiment_name;
  std::string experiment_file;  ///< absolute; paths inside the experiment are relative to it
  std::string results_folder;   ///< absolute; holds the experiment's folder
  std::string site;             ///< what find_site takes
  bool has_slurm = true;
  int submission = 0;  ///< from 1
  int array = 0;       ///< from 0
  std::string time;    ///< ISO 8601 UTC of its making
  std::string token;   ///< of this array alone, the comment of its job: by it the queue knows what no file may tell
  JobArray job;
  std::map<std::string, std::string> point_axes;  ///< by point id: "strategy.name=ddp nodes=2", for people
  std::map<std::string, std::vector<std::string>>
      expects;  ///< by point id: outcomes that are no failures; none: absent
  /// Where it was read: a folder may have been moved or copied since. Empty: it has just been made.
  std::filesystem::path read_from{};
  bool operator==(const Manifest&) const = default;
};

std::string to_json(const Manifest& manifest);
/// @throws UserError naming @p file_name: not a manifest, or one of another version.
Manifest parse_manifest(const std::string& text, const std::string& file_name);
/// @throws UserError also when it cannot be read.
Manifest read_manifest(const std::filesystem::path& file);

/// `<results>/<experiment>`, or where it was read.
std::filesystem::path experiment_folder(const Manifest& manifest);
std::filesystem::path submission_folder(const Manifest& manifest);
/// In a submission's folder: `<point>.toml` for each point that it launches.
inline constexpr const char* point_files_folder = "points";
/// `<submission folder>/array-<a><suffix>`
std::filesystem::path array_file(const Manifest& manifest, const std::string& suffix);
/// Names one launch within an experiment: "<submission>/<array>.<task>.<launch>".
std::string launch_name(const Manifest& manifest, std::size_t task, std::size_t launch);

/// All manifests below @p experiment_folder, by submission and array. Empty where nothing was submitted. One that
/// cannot be read is left out, with a warning that names it.
std::vector<Manifest> read_manifests(const std::filesystem::path& experiment_folder);

/// Slurm's id of a submitted array; empty: not submitted, or no Slurm.
std::string read_job_id(const Manifest& manifest);

}  // namespace strata::harness
