#pragma once

/// @file
/// The state of a sweep with what Slurm, where there is one, adds to our own files.

#include <string>

#include "base/environment.hpp"
#include "harness/sweep_state.hpp"

namespace strata::harness {

/// @param results `<results>/<experiment>`. One `squeue` for all jobs of the sweep, `sinfo` only for nodes under
/// suspicion. Empty where there are no manifests.
harness::SweepState state_with_queue(const std::string& results, const Environment& environment);

}  // namespace strata::harness
