#pragma once

/// @file
/// The counters of all ranks' devices around windows of steps: what a result says of them, and what a step took.

#include <cstdint>
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

  /// Before steps. A driver takes milliseconds to answer all that is asked, so that steps are not asked for one by one:
  /// between them the device would stand still.
  void begin_window();
  /// Of the @p num_steps steps since then: the mean energy of one, and everything else as it is now. All unknown
  /// without a monitor.
  DeviceReading end_window(std::int64_t num_steps);

 private:
  void join_limits(const comm::World& world);
  void join_reasons(const comm::World& world);
  std::unique_ptr<DeviceMonitor> monitor_;
  int num_sharers_ = 0;
  results::AttemptFacts joint_;  ///< the members that describe() copies
  double energy_before_joules_ = DeviceReading::unknown;
};

}  // namespace strata::run
