#pragma once

/// @file
/// Kernels that take runs of neighbours know them by the attributes run, size0, stride0, …: see kernel_table.

#include <cstddef>

namespace strata {

constexpr std::size_t most_run_levels = 8;

}  // namespace strata
