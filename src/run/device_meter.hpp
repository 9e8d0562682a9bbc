#pragma once

/// @file
/// The counters of all ranks' devices around their steps: what a result says of them, and what one step took.

#include <memory>

#include "comm/world.hpp"
#include "exec/device/device_monitor.hpp"
#include "results/rows.hpp"

namespace strata::run {

class DeviceMeter {
 public:
  /// Collective. @param monitor of this rank's device; null where the backend has none, which is so on all ranks.
  DeviceMeter(const comm::World& world, std::unique_ptr<DeviceMonitor> monitor);

  /// Limits, gaps and how ranks share devices, equal on all ranks; the driver's version, rank 0's view.
  void describe(results::AttemptFacts& facts) const;
  /// How many ranks use this rank's device; 0: no monitor.
  int num_sharers() const { return num_sharers_; }

  /// Before a step; what is asked here and after it is no part of its time.
  void begin_step();
  /// Of the step since then: its energy, and everything else as it is now. All unknown without a monitor.
  DeviceReading end_step();

 private:
  void join_limits(const comm::World& world);
  void join_reasons(const comm::World& world);
  std::unique_ptr<DeviceMonitor> monitor_;
  int num_sharers_ = 0;
  results::AttemptFacts joint_;  ///< the members that describe() copies
  double energy_before_joules_ = DeviceReading::unknown;
};

}  // namespace strata::run
