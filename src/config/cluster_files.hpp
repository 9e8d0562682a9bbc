#pragma once

/// @file
/// Where descriptions of clusters lie, and which of them a name means. "this", the machine itself, has no file.

#include <filesystem>
#include <string>
#include <string_view>

#include "base/look_up.hpp"
#include "ir/machine/cluster.hpp"

namespace strata {

/// @throws UserError with the file where it cannot be read, does not parse or contradicts itself.
Cluster read_cluster(const std::filesystem::path& file);

/// @param name_or_path ends in .toml: that file; else a name in @p look_up.
/// @param origin what asks, for messages: "file:line: cluster".
/// @throws UserError for an unknown name with the known ones, nearest first.
std::filesystem::path find_cluster_file(const std::string& name_or_path, const LookUp& look_up,
                                        std::string_view origin);

/// What find_cluster_file finds, read. @throws UserError as it and read_cluster.
Cluster find_cluster(const std::string& name_or_path, const LookUp& look_up, std::string_view origin);

}  // namespace strata
