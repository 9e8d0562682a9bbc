#pragma once

/// @file
/// What a result says about the software that made it.

#include <string>

#include "base/environment.hpp"
#include "results/rows.hpp"

namespace strata::predict {

/// "0.1.0 (9f63af51b2c3)": version and commit.
std::string version_and_commit();

/// Versions, commit, binary, launcher and environment; everything else is left for the caller.
results::AttemptFacts provenance_of(const Environment& environment);

}  // namespace strata::predict
