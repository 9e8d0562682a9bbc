#pragma once

/// @file
/// Measurements of all ranks → rows of rank 0. Ranks keep their steps and exchange them a few at a time, so that
/// recording costs the step nothing.

#include <cstdint>
#include <vector>

#include "comm/world.hpp"
#include "exec/device/device_monitor.hpp"
#include "exec/executor.hpp"
#include "results/rows.hpp"

namespace strata::run {

/// One step on one rank; plain bytes, sent as they are.
struct RankStep {
  std::int64_t step = 0;
  std::int64_t begin_ns = 0;  ///< steady_clock, when it was submitted, with which its events' clock starts
  double unix_seconds = 0.0;
  double learning_rate = 0.0;
  bool fills = false, drains = false;  ///< where steps overlap; see fill_and_drain()
  StepMeasurement measured;
  std::int64_t outside_arena_bytes = 0;
  DeviceReading device;  ///< of the window of steps that it is in: energy is the mean of one
  int num_sharers = 0;   ///< ranks that use the device, this one included; 0: it has no counters
};

/// What does not change from step to step.
struct StepFacts {
  std::int64_t num_samples = 0;  ///< tokens or images a step
  std::int64_t num_warmup_steps = 0;
};

/// Collective. @return on rank 0 a row for each step that every rank hands in; elsewhere nothing.
/// @param peak live bytes by category and the arena's extent, of this rank's Program.
std::vector<results::StepRow> exchange_steps(const comm::World& world, const std::vector<RankStep>& steps,
                                             const StepFacts& facts, const MemoryPeak& peak,
                                             std::int64_t touched_bytes);

}  // namespace strata::run
