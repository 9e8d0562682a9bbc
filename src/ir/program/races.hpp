#pragma once

/// @file
/// Accesses to common bytes that nothing orders. Addresses count, not buffers: this finds both a missing wait and two
/// live buffers at one place.

#include <optional>

#include "ir/program/program.hpp"
#include "ir/program/repetition.hpp"

namespace strata {

/// Two instructions, by index into a list, that touch the same bytes, at least one of them writing, in no order.
struct Race {
  int earlier = 0, later = 0;
  int earlier_buffer = 0, later_buffer = 0;  ///< by which they touch them
};

/// The first race of @p list, instructions of @p program that run one after the other on its streams.
std::optional<Race> find_race(const Program& program, const InstructionList& list);

}  // namespace strata
