#pragma once

/// @file
/// Which instructions of the processor a process uses. Vector code is compiled once for each set
/// (cmake/InstructionSets.cmake) and chosen here, once, so that one binary serves every node and a test can hold it to
/// an older processor's.

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.hpp"

namespace strata {

/// Each contains those before it. avx2: x86-64-v3, with FMA; avx512: x86-64-v4 (F, BW, CD, DQ, VL); amx: tiles of bf16.
enum class InstructionSet : std::uint8_t { avx2, avx512, avx512_bf16, amx };

std::string_view to_string(InstructionSet set);

/// The widest that this processor has, and that the environment variable STRATA_MAX_CPU_ISA (one of these names; unset:
/// no limit) allows. Our own kernels and oneDNN keep to it. Constant in a process.
/// @throws UserError for another name in the variable; Unsupported where the processor has no AVX2.
InstructionSet instruction_set();

/// Of what was compiled for several sets, narrowest first, the widest that instruction_set() allows.
/// @throws Unsupported where there is none.
template <class Compiled>
Compiled* widest_allowed(std::initializer_list<std::pair<InstructionSet, Compiled*>> compiled) {
  Compiled* widest = nullptr;
  for (const auto& [set, entry] : compiled) {
    if (set <= instruction_set()) widest = entry;
  }
  if (widest == nullptr) {
    throw Unsupported("this strata was built without code for " + std::string(to_string(instruction_set())));
  }
  return widest;
}

/// Whether STRATA_MAX_CPU_ISA is set.
bool instruction_set_is_limited();

}  // namespace strata
