#pragma once

/// @file
/// The machine at hand as a description that planners and the simulator can ask, measured by all ranks of a launch in
/// seconds: what a rank computes and copies while all others do so too, and what carries collectives inside nodes and
/// between them. `strata profile` measures kernels and collectives one by one, and wins where there is one.

#include "comm/world.hpp"
#include "config/experiment.hpp"
#include "exec/cuda_backend.hpp"
#include "ir/machine/cluster.hpp"
#include "profile/measured_peak.hpp"

namespace strata::profile {

/// predict::machine_at_hand() with its numbers filled in. A node's NIC stands for all that its ranks send at once;
/// where links differ they are those of the slowest ranks. Collective over @p world. @param transport on GPUs alone.
/// @throws LaunchMismatch, equal on all ranks, where nodes have unequally many.
Cluster measured_machine(const comm::World& world, const Experiment& experiment, cuda::Transport transport,
                         MeasuredPeak& peak);

}  // namespace strata::profile
