#pragma once

/// @file
/// What a device says of itself beside the work: energy, power, clocks, memory. Read between steps, by whoever runs
/// them; backends without counters have no monitor. The one decision: a number that was not measured is NaN, and why
/// it was not stands in unmeasured() under the same name, which is that of results-schema/ too.

#include <limits>
#include <map>
#include <string>

namespace strata {

/// Now, of the whole device: all that run on it are in these numbers.
struct DeviceReading {
  static constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
  double energy_joules = unknown;  ///< a counter: differences have a meaning
  double power_watts = unknown;
  double sm_clock_hertz = unknown;  ///< of the multiprocessors
  double memory_clock_hertz = unknown;
  double clock_event_reasons = unknown;  ///< what holds the clocks back: a set of bits, see results-schema/
  double device_memory_used_bytes = unknown;
  double device_memory_taken_bytes = unknown;  ///< the same less what was in use when the monitor was made
};

/// Does not change while the device is in use.
struct DeviceLimits {
  double max_sm_clock_hertz = DeviceReading::unknown;
  double max_memory_clock_hertz = DeviceReading::unknown;
  double power_limit_watts = DeviceReading::unknown;
};

/// Of one rank's device. Calls come from one thread and take the time of some driver calls: not inside a step, and not
/// around each.
class DeviceMonitor {
 public:
  virtual ~DeviceMonitor() = default;
  /// Equal for the ranks of a node that share a device, and for no others of the node.
  virtual std::string device_id() const = 0;
  virtual std::string driver_version() const = 0;  ///< empty: unknown
  virtual DeviceLimits limits() const = 0;
  virtual DeviceReading read() = 0;
  /// Member of DeviceReading or DeviceLimits → why it is NaN.
  virtual const std::map<std::string, std::string>& unmeasured() const = 0;
};

}  // namespace strata
