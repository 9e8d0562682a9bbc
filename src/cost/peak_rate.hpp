#pragma once

/// @file
/// Numbers of a Cluster that a cost needs, or an error that names the missing one.

#include "base/dtype.hpp"
#include "ir/cluster.hpp"

namespace strata {

/// Of one device. Devices without bf16 compute it at their f16 rate. @throws UserError naming the key.
double peak_flops_per_second(const Cluster& cluster, DType dtype);
/// @throws UserError naming the key.
void require_memory_bandwidth(const Cluster& cluster);

}  // namespace strata
