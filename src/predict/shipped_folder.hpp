#pragma once

/// @file
/// Where what ships beside the executable lies: experiments, clusters, sites, the analysis package.

#include <filesystem>

namespace strata::predict {

/// Of an installed executable `<prefix>/share/strata`, else the source folder that it was built from. Both have the
/// same folders below. What somebody else than the owner of the executable, this user and root has put in their place
/// is not believed. @throws UserError where only that is there.
std::filesystem::path shipped_folder();

}  // namespace strata::predict
