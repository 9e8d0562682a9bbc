#pragma once

/// @file
/// What the machine at hand costs, measured once and kept, so that all launches of an experiment plan with the same
/// numbers: one file in <results>/<experiment>/machine for each device, shape of the allocation, [communication] and
/// build.

#include <string>

#include "comm/world.hpp"
#include "config/experiment.hpp"
#include "exec/cuda_backend.hpp"
#include "ir/machine/cluster.hpp"
#include "profile/measured_peak.hpp"

namespace strata::run {

/// Where the numbers of @p experiment stand, below @p folder.
std::string machine_file(const Experiment& experiment, const std::string& folder);

/// Those in machine_file(), or, where there is none yet, new ones, which rank 0 writes there. Collective, and equal on
/// all ranks. @param folder the experiment's results. @param transport on GPUs alone.
/// @throws UserError where the file cannot be read or written.
Cluster machine_costs(const comm::World& world, const Experiment& experiment, const std::string& folder,
                      cuda::Transport transport, profile::MeasuredPeak& peak);

}  // namespace strata::run
