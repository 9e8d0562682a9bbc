#pragma once

/// @file
/// Where descriptions of clusters lie, and which of them a name means. "this", the machine itself, has no file.

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/machine/cluster.hpp"

namespace strata {

/// The folders "clusters" and "experiments/clusters" beside @p start and beside each folder above it, nearest first;
/// those that do not exist too. @p start is a folder; relative: of the working directory.
std::vector<std::filesystem::path> cluster_folders_above(const std::filesystem::path& start);

/// Every description in @p folders, by name. Of two with one name the folder that comes first has its way.
std::vector<std::filesystem::path> cluster_files(std::span<const std::filesystem::path> folders);

/// @throws UserError with the file where it cannot be read, does not parse or contradicts itself.
Cluster read_cluster(const std::filesystem::path& file);

/// @param name_or_path ends in .toml: that file; else the name of one of cluster_files(folders).
/// @param origin what asks, for messages: "file:line: cluster".
/// @throws UserError for an unknown name with the known ones, nearest first.
std::filesystem::path find_cluster_file(const std::string& name_or_path, std::span<const std::filesystem::path> folders,
                                        std::string_view origin);

/// What find_cluster_file finds, read. @throws UserError as it and read_cluster.
Cluster find_cluster(const std::string& name_or_path, std::span<const std::filesystem::path> folders,
                     std::string_view origin);

}  // namespace strata
