#pragma once

/// @file
/// How many bytes of activations a Program has at once, whatever else is alive then.

#include <algorithm>
#include <cstdint>

#include "ir/program/program.hpp"

namespace strata {

inline std::int64_t peak_activations(const Program& program) {
  std::int64_t alive = 0;
  std::int64_t peak = 0;
  const auto bytes = [&](int id) {
    const Buffer& buffer = program.buffers[static_cast<std::size_t>(id)];
    return buffer.category == Category::activation ? buffer.size_bytes() : 0;
  };
  for (const Instruction& in : program.body) {
    for (const int id : in.allocs) alive += bytes(id);
    peak = std::max(peak, alive);
    for (const int id : in.frees) alive -= bytes(id);
  }
  return peak;
}

}  // namespace strata
