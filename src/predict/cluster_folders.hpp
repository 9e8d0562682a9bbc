#pragma once

/// @file
/// Where this executable looks for descriptions of clusters.

#include <filesystem>
#include <vector>

namespace strata::predict {

/// At and above @p start, then at and above the working directory, then in shipped_folder(): the descriptions that ship
/// are found from any folder, and one's own come first.
std::vector<std::filesystem::path> cluster_folders(const std::filesystem::path& start);

}  // namespace strata::predict
