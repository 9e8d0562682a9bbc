#pragma once

/// @file
/// The shortest time in which one rank's body can run when every instruction takes a given time: streams in order,
/// waits honoured, nothing else in the way. What overlap can reach at best.

#include <span>

#include "ir/program/program.hpp"

namespace strata {

/// @param seconds of each instruction of the body. Waits with a lag cost nothing: they concern earlier repetitions.
/// @return the end of the last instruction.
double longest_path_seconds(const Program& program, std::span<const double> seconds);

}  // namespace strata
