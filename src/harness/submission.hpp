#pragma once

/// @file
/// Some arrays of an experiment, made ready at one time: manifests, scripts and each point's own experiment file, on
/// disk before anything is submitted, so that a submission that stops half way can be read and resumed. All of it is in
/// the submission's folder: what is submitted later changes nothing under jobs that wait.

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "harness/left_out.hpp"
#include "harness/manifest.hpp"
#include "harness/site.hpp"

namespace strata::harness {

/// One array of a submission, with its script as text.
struct ReadyArray {
  Manifest manifest;
  std::string script;
  /// By task: predicted, of all steps of all launches, at most. NaN: unknown. Empty: nobody was asked.
  std::vector<double> steps_seconds{};
  bool has_predictions() const { return !steps_seconds.empty(); }
};

/// By point id: an experiment with no sweep left in it, as TOML.
using PointFiles = std::map<std::string, std::string>;

struct Submission {
  int number = 0;  ///< from 1; 0: not on disk
  std::vector<ReadyArray> arrays;
  PointFiles point_files{};
  std::vector<LeftOutPoint> left_out{};

  double node_hours() const;
  double gpu_hours() const;
  std::int64_t num_launches() const;
};

/// What every array of a submission has in common.
struct SubmissionRequest {
  std::string experiment_name;
  std::string experiment_file;  ///< absolute
  std::string results_folder;   ///< absolute
  std::string strata_binary;    ///< absolute
  Site site;
  std::string site_name_or_path;  ///< what find_site takes, for a later resume
  PointFiles point_files{};       ///< of all points of its arrays
  std::map<std::string, std::string> point_axes;
  std::map<std::string, std::vector<std::string>> expects;
  bool has_predictions = false;
  std::map<std::string, double> steps_seconds{};  ///< by point: predicted of one launch, at most; absent: unknown
  std::vector<LeftOutPoint> left_out{};
};

/// Nothing is written. @p number: of the submission; its folder need not exist.
Submission make_submission(const SubmissionRequest& request, std::vector<JobArray> arrays, int number);

/// The number that claim_submission would give now.
int next_submission(const std::filesystem::path& experiment_folder);

/// Claims the next number below `<results>/<experiment>/submissions` by making its folder. @throws UserError.
int claim_submission(const std::filesystem::path& experiment_folder);

/// Manifests, scripts, point files and what was left out, under the submission's name only when they are whole.
/// @throws UserError.
void write_submission(const Submission& submission);

/// Of the points that @p arrays launch: what the last of @p manifests that asks for a point runs. @throws UserError
/// where a file is missing.
PointFiles read_point_files(const std::vector<Manifest>& manifests, const std::vector<JobArray>& arrays);

/// @throws UserError.
void write_job_id(const Manifest& manifest, const std::string& job_id);

/// Arrays, node-hours, GPU-hours and the largest job, for people; what was predicted of their steps, beside the time
/// limits; of a head-to-head submission also how many blocks can decide its comparisons (see blocks_needed).
std::string to_table(const Submission& submission);

}  // namespace strata::harness
