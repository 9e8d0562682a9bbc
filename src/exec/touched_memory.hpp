#pragma once

/// @file
/// The one place that tells what a run has touched of its arena apart from what a library was given and left untouched.

#include <cstdint>
#include <functional>

#include "exec/executor.hpp"
#include "ir/program/program.hpp"

namespace strata {

/// @param highest_written one past the highest byte of the arena that was written, of those below its argument.
TouchedMemory touched_memory(const Program& program,
                             const std::function<std::int64_t(std::int64_t end)>& highest_written);

}  // namespace strata
