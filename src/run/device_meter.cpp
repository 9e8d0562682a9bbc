#include "run/device_meter.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace strata::run {

DeviceMeter::DeviceMeter(const comm::World& world, std::unique_ptr<DeviceMonitor> monitor)
    : monitor_(std::move(monitor)) {
  if (!monitor_) return;
  const std::vector<std::string> devices = world.all_gather(fmt::format("{} {}", world.node(), monitor_->device_id()));
  const auto sharers = [&](const std::string& device) { return std::ranges::count(devices, device); };
  num_sharers_ = static_cast<int>(sharers(devices[static_cast<std::size_t>(world.rank())]));
  for (const std::string& device : devices) {
    joint_.ranks_per_device = std::max<std::int64_t>(joint_.ranks_per_device, sharers(device));
  }
  join_limits(world);
  join_reasons(world);
}

/// The lowest of all devices', which is unknown where any is.
void DeviceMeter::join_limits(const comm::World& world) {
  const DeviceLimits mine = monitor_->limits();
  double lowest[] = {mine.max_sm_clock_hertz, mine.max_memory_clock_hertz, mine.power_limit_watts};
  for (double& limit : lowest) {
    if (std::isnan(limit)) limit = -std::numeric_limits<double>::infinity();
  }
  world.all_reduce_min(lowest);
  for (double& limit : lowest) {
    if (std::isinf(limit)) limit = results::unknown;
  }
  joint_.max_sm_clock_hertz = lowest[0];
  joint_.max_memory_clock_hertz = lowest[1];
  joint_.power_limit_watts = lowest[2];
}

void DeviceMeter::join_reasons(const comm::World& world) {
  std::string mine;
  for (const auto& [name, why] : monitor_->unmeasured()) mine += fmt::format("{}: {}\n", name, why);
  if (num_sharers_ > 1) mine += fmt::format("device_memory_taken_bytes: {} ranks share the device\n", num_sharers_);
  std::set<std::string> names;
  for (const std::string& text : world.all_gather(mine)) {
    for (std::string_view rest = text; !rest.empty(); rest.remove_prefix(rest.find('\n') + 1)) {
      const std::string line(rest.substr(0, rest.find('\n')));
      if (names.insert(line.substr(0, line.find(':'))).second) joint_.unmeasured.push_back(line);
    }
  }
}

void DeviceMeter::describe(results::AttemptFacts& facts) const {
  facts.ranks_per_device = joint_.ranks_per_device;
  facts.max_sm_clock_hertz = joint_.max_sm_clock_hertz;
  facts.max_memory_clock_hertz = joint_.max_memory_clock_hertz;
  facts.power_limit_watts = joint_.power_limit_watts;
  facts.unmeasured = joint_.unmeasured;
  if (monitor_ && !monitor_->driver_version().empty()) {
    facts.library_versions["device_driver"] = monitor_->driver_version();
  }
}

void DeviceMeter::begin_window() {
  if (monitor_) energy_before_joules_ = monitor_->read().energy_joules;
}

DeviceReading DeviceMeter::end_window(std::int64_t num_steps) {
  if (!monitor_) return {};
  DeviceReading reading = monitor_->read();
  reading.energy_joules = (reading.energy_joules - energy_before_joules_) / static_cast<double>(num_steps);
  if (num_sharers_ > 1) reading.device_memory_taken_bytes = DeviceReading::unknown;
  return reading;
}

}  // namespace strata::run
