#pragma once

/// @file
/// [communication] as the engine takes it.

#include <cstddef>

#include "comm/engine.hpp"
#include "config/experiment.hpp"
#include "ir/program/program.hpp"

namespace strata::predict {

/// Large enough for a step that posts @p num_operations, as [communication] and the compute threads say; without a
/// watchdog's callback.
comm::EngineOptions engine_options(const Experiment& experiment, std::size_t num_operations);
/// Operations that one repetition of the body posts, one a tensor, or more.
std::size_t num_operations(const Program& program);

}  // namespace strata::predict
