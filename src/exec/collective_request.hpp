#pragma once

/// @file
/// A collective of a Program as the communication engine takes it, for executors of every device.

#include <span>
#include <string>
#include <vector>

#include "comm/engine.hpp"
#include "exec/kernel_arguments.hpp"
#include "ir/program/program.hpp"

namespace strata {

/// The groups of @p program in @p engine, by number. Collective: all ranks call it together.
std::vector<int> create_groups(const Program& program, comm::Engine& engine);

/// For the watchdog: number @p index of a section, kind, name and group.
std::string collective_label(const Program& program, const Instruction& in, std::size_t index);

/// One request a tensor, to be posted together.
/// @param arguments addresses that the engine can reach. @param label outlives the requests.
std::vector<comm::Request> collective_requests(const Program& program, const Instruction& in,
                                               const Arguments& arguments, std::span<const int> engine_groups,
                                               const std::string& label);

}  // namespace strata
