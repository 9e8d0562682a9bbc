#include "predict/machine_files.hpp"

#include <fmt/core.h>

#include <filesystem>
#include <system_error>

#include "base/read_file.hpp"

namespace strata::predict {

namespace fs = std::filesystem;

std::string machine_file_prefix(const Experiment& experiment, const std::string& folder) {
  return fmt::format("{}/machine/{}x{}-{}-", folder, experiment.resources.nodes, experiment.resources.ranks_per_node,
                     experiment.train.dtype);
}

std::optional<Cluster> earlier_machine(const std::string& prefix) {
  const std::string begin = fs::path(prefix).filename().string();
  fs::path newest;
  fs::file_time_type time;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(fs::path(prefix).parent_path(), missing)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(begin) || !name.ends_with(".toml")) continue;
    const fs::file_time_type written = entry.last_write_time(missing);
    if (missing || (!newest.empty() && written <= time)) continue;
    newest = entry.path();
    time = written;
  }
  if (newest.empty()) return std::nullopt;
  return parse_cluster(read_file(newest.string()), newest.string());
}

}  // namespace strata::predict
