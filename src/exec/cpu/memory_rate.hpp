#pragma once

/// @file
/// How fast one rank streams through memory: the denominator of memory-bound kernels.

namespace strata::cpu {

/// Bytes read plus bytes written a second by copying 64 MiB on the calling thread, the best of three.
double measure_memory_bytes_per_second();

}  // namespace strata::cpu
