#pragma once

/// @file
/// What kernels of a Program need beside their operands, where a test knows no library that would say: nothing, or
/// always the same.

#include <cstdint>

#include "ir/program/program.hpp"

namespace strata {

inline std::int64_t no_workspace(const Program&, const Instruction&) { return 0; }
inline std::int64_t some_workspace(const Program&, const Instruction&) { return 1000; }

}  // namespace strata
