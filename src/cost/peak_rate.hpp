#pragma once

/// @file
/// Numbers of a Cluster that a cost needs, or an error that names the missing one.

#include "base/dtype.hpp"
#include "ir/machine/cluster.hpp"

namespace strata {

/// Of one device. Devices without bf16 compute it at their f16 rate. @throws UserError naming the key.
double peak_flops_per_second(const Cluster& cluster, DType dtype);
/// What training reaches where the cluster says it, else 0.
double effective_flops_per_second(const Cluster& cluster, DType dtype);
/// What collectives reach where the link says it, else its nameplate.
double effective_bandwidth(const Link& link);
/// @throws UserError naming the key.
void require_memory_bandwidth(const Cluster& cluster);

}  // namespace strata
