#pragma once

/// @file
/// Where this executable looks for descriptions of clusters.

#include <filesystem>

#include "base/look_up.hpp"

namespace strata::predict {

/// The folders "clusters" and "experiments/clusters" of @p start, an experiment's folder, and of the working directory,
/// as far as nobody else may write them, then those that ship: they are found from any folder, and one's own come
/// first.
LookUp cluster_folders(const std::filesystem::path& start);

}  // namespace strata::predict
