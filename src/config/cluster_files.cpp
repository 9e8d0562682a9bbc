#include "config/cluster_files.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <system_error>

#include "base/error.hpp"
#include "base/near_name.hpp"
#include "base/read_file.hpp"

namespace strata {

namespace fs = std::filesystem;

std::vector<fs::path> cluster_folders_above(const fs::path& start) {
  std::vector<fs::path> folders;
  // Without its "." and "..", a path's parents are the folders above it.
  for (fs::path folder = fs::absolute(start).lexically_normal();; folder = folder.parent_path()) {
    folders.push_back(folder / "clusters");
    folders.push_back(folder / "experiments" / "clusters");
    if (folder == folder.parent_path()) return folders;
  }
}

std::vector<fs::path> cluster_files(std::span<const fs::path> folders) {
  std::map<std::string, fs::path> by_name;
  for (const fs::path& folder : folders) {
    // A folder above the start may be one that nobody but its owner reads: nothing of ours lies there.
    std::error_code unreadable;
    for (const auto& entry : fs::directory_iterator(folder, unreadable)) {
      if (entry.path().extension() == ".toml") by_name.emplace(entry.path().stem().string(), entry.path());
    }
  }
  std::vector<fs::path> files;
  for (const auto& [name, file] : by_name) files.push_back(file);
  return files;
}

Cluster read_cluster(const fs::path& file) {
  Cluster cluster = parse_cluster(read_file(file.string()), file.string());
  try {
    verify(cluster);
  } catch (const UserError& error) {
    throw UserError(fmt::format("{}: {}", file.string(), error.what()));
  }
  return cluster;
}

fs::path find_cluster_file(const std::string& name_or_path, std::span<const fs::path> folders,
                           std::string_view origin) {
  if (name_or_path.ends_with(".toml")) {
    if (!fs::exists(name_or_path)) {
      throw UserError(fmt::format("{} = \"{}\": no such file", origin, name_or_path));
    }
    return name_or_path;
  }
  std::vector<std::string> known;
  for (const fs::path& file : cluster_files(folders)) {
    if (file.stem() == name_or_path) return file;
    known.push_back(file.stem().string());
  }
  const auto nearest = nearest_names(name_or_path, known, static_cast<int>(known.size()));
  throw UserError(fmt::format("{} = \"{}\": no such description{}; known: {}; a path ends in .toml", origin,
                              name_or_path, did_you_mean(name_or_path, known),
                              known.empty() ? "none" : fmt::format("{}", fmt::join(nearest, ", "))));
}

Cluster find_cluster(const std::string& name_or_path, std::span<const fs::path> folders, std::string_view origin) {
  return read_cluster(find_cluster_file(name_or_path, folders, origin));
}

}  // namespace strata
