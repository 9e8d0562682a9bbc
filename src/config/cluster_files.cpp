#include "config/cluster_files.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "base/error.hpp"
#include "base/near_name.hpp"
#include "base/read_file.hpp"

namespace strata {

namespace fs = std::filesystem;

Cluster read_cluster(const fs::path& file) {
  Cluster cluster = parse_cluster(read_file(file.string()), file.string());
  try {
    verify(cluster);
  } catch (const UserError& error) {
    throw UserError(fmt::format("{}: {}", file.string(), error.what()));
  }
  return cluster;
}

fs::path find_cluster_file(const std::string& name_or_path, const LookUp& look_up, std::string_view origin) {
  if (name_or_path.ends_with(".toml")) {
    if (!fs::exists(name_or_path)) {
      throw UserError(fmt::format("{} = \"{}\": no such file", origin, name_or_path));
    }
    return name_or_path;
  }
  const auto found = look_up.files.find(name_or_path);
  if (found != look_up.files.end()) return found->second;
  std::vector<std::string> known;
  for (const auto& [name, file] : look_up.files) known.push_back(name);
  const auto nearest = nearest_names(name_or_path, known, static_cast<int>(known.size()));
  throw UserError(fmt::format("{} = \"{}\": no such description{}; known: {}; a path ends in .toml{}{}", origin,
                              name_or_path, did_you_mean(name_or_path, known),
                              known.empty() ? "none" : fmt::format("{}", fmt::join(nearest, ", ")),
                              look_up.left_out.empty() ? "" : "; ", not_used(look_up)));
}

Cluster find_cluster(const std::string& name_or_path, const LookUp& look_up, std::string_view origin) {
  return read_cluster(find_cluster_file(name_or_path, look_up, origin));
}

}  // namespace strata
