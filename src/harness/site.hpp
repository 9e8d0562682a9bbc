#pragma once

/// @file
/// What differs between clusters when a job is submitted: scheduler, partition, modules, launcher, environment. One
/// TOML file a site in jobscripts/sites; no science in there.

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/look_up.hpp"

namespace strata::harness {

struct Site {
  std::string name;                 ///< of the file, without .toml
  std::string file;                 ///< where it stands; empty: it was read from elsewhere
  std::string scheduler = "slurm";  ///< slurm | none: the scripts run one after the other on this machine
  std::string partition;            ///< empty: the cluster's default; [job] of the experiment comes first
  std::string account;
  std::string qos;
  std::string constraint;               ///< [job] of the experiment comes first
  std::vector<std::string> directives;  ///< further words of #SBATCH lines, e.g. "--switches=1"
  std::vector<std::string> modules;     ///< loaded in this order
  std::vector<std::string> setup;       ///< shell lines before the first launch
  std::string launcher;                 ///< without the geometry, which is appended
  std::string cpu_bind;                 ///< of srun; empty: the cluster's default
  bool exclusive = true;                ///< nodes are not shared with other jobs
  std::int64_t gpus_per_node = 0;       ///< 0: none is asked for
  /// A signal this long before the time limit lets a run end its step and close its file.
  std::int64_t time_limit_margin_seconds = 60;
  std::vector<std::pair<std::string, std::string>> environment;  ///< exported, in this order

  bool has_slurm() const { return scheduler == "slurm"; }
};

/// Where sites are looked for: jobscripts/sites in @p start, where nobody else may write it, then in @p shipped.
LookUp site_folders(const std::filesystem::path& start, const std::filesystem::path& shipped);

/// @throws UserError where the file cannot be read, or what parse_site throws.
Site read_site(const std::filesystem::path& file);

/// @throws UserError with file, line, key and what is accepted.
Site parse_site(std::string_view text, const std::string& file_name);

/// @param name_or_path ends in .toml: that file; else a name in one of the folders of @p look_up.
/// @throws UserError: unknown, with the names there are; unreadable; or what parse_site throws.
Site find_site(const std::string& name_or_path, const LookUp& look_up);

}  // namespace strata::harness
