#pragma once

/// @file
/// By what the CPU makes a Program's convolutions: Winograd's transforms (kernels/winograd.hpp) or direct sums.

#include <string>

#include "exec/cpu/numerics.hpp"
#include "ir/program/program.hpp"

namespace strata::cpu {

/// Of all convolutions of @p program on this processor: "winograd", "direct" or "winograd and direct"; empty where it
/// has none.
std::string convolutions_of(const Program& program, const Numerics& numerics);

}  // namespace strata::cpu
