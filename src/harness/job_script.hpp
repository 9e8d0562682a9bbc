#pragma once

/// @file
/// The batch script of one array. It stands alone: it can be read, edited, and submitted by hand.

#include <string>

#include "harness/manifest.hpp"
#include "harness/site.hpp"

namespace strata::harness {

/// @param strata_binary absolute path of the executable that the jobs start.
/// @throws UserError where a path or a site's word cannot stand in an #SBATCH line.
std::string job_script(const Manifest& manifest, const Site& site, const std::string& strata_binary);

}  // namespace strata::harness
