#pragma once

/// @file
/// What a result says about the software that made it.

#include "app/environment.hpp"
#include "results/rows.hpp"

namespace strata::app {

/// Versions, commit, binary, launcher and environment; everything else is left for the caller.
results::AttemptFacts provenance_of(const Environment& environment);

}  // namespace strata::app
