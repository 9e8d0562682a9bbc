#pragma once

/// @file
/// [communication] as the engine takes it.

#include <cstddef>

#include "comm/engine.hpp"
#include "config/experiment.hpp"

namespace strata::predict {

/// Large enough for the body of a Program of @p num_instructions, as [communication] and the compute threads say;
/// without a watchdog's callback.
comm::EngineOptions engine_options(const Experiment& experiment, std::size_t num_instructions);

}  // namespace strata::predict
