#pragma once

/// @file
/// Where sites are looked for: jobscripts/sites beside a folder and above it, then in shipped_folder().

#include <filesystem>
#include <vector>

namespace strata::cli {

std::vector<std::filesystem::path> site_folders(const std::filesystem::path& start);

}  // namespace strata::cli
