#pragma once

/// @file
/// [communication] as the engine takes it.

#include "comm/engine.hpp"
#include "config/experiment.hpp"
#include "ir/program/program.hpp"

namespace strata::predict {

/// Large enough for @p program, as [communication] and the compute threads say; without a watchdog's callback.
comm::EngineOptions engine_options(const Experiment& experiment, const Program& program);

}  // namespace strata::predict
