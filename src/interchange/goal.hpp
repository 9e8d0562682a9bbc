#pragma once

/// @file
/// Programs of all ranks as a GOAL schedule, the input of LogGOPSim (Hoefler, Schneider, Lumsdaine, "LogGOPSim", HPDL
/// LSAP 2010): calculations, sends and receives of each rank with their dependencies. The decisions: collectives are
/// cut into the messages that the communication engine itself sends — every rank exchanges with every other in pairs —
/// so that each rank sends exactly what elements_sent() says. And a rank has one processor, not one a stream: LogGOPSim
/// starts an operation when its processor is free, whenever what it requires on another one ended. So a transfer begins
/// between two kernels, and receiving keeps the rank from computing: where transfers run beside kernels LogGOPSim ends
/// later than sim/, elsewhere with it.

#include <functional>
#include <string>
#include <vector>

#include "ir/program/program.hpp"

namespace strata {

/// Seconds of a kernel.
using KernelSeconds = std::function<double(const Program& program, const Instruction& instruction)>;

/// The bodies of @p programs, by rank, as text: `num_ranks N`, then `rank r { … }` with `calc` in nanoseconds, `send Xb
/// to r tag t`, `recv Xb from r tag t` and `a requires b`. Streams and waits become dependencies. Messages of equal
/// endpoints have distinct tags. Steps that overlap are given as one list (in_one_list). @throws InternalError if a
/// program does not stand at its rank, or has more messages than tags.
std::string to_goal(const std::vector<Program>& programs, const KernelSeconds& kernel_seconds);

}  // namespace strata
