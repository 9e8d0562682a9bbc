#pragma once

/// @file
/// Where what ships beside the executable lies: experiments, clusters, sites, the analysis package.

#include <filesystem>

namespace strata::predict {

/// Of an installed executable `<prefix>/share/strata`, else the source folder that it was built from. Both have the
/// same folders below.
std::filesystem::path shipped_folder();

}  // namespace strata::predict
