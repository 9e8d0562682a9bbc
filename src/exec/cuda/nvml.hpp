#pragma once

/// @file
/// Counters of one GPU as NVIDIA's management library has them. That library comes with the driver and not with the
/// toolkit, so it is looked for when a run begins: without it, and of GPUs that lack a counter, numbers are NaN and the
/// reason is kept.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "exec/device/device_monitor.hpp"

namespace strata::cuda {

class Nvml {
 public:
  static constexpr const char* driver_library = "libnvidia-ml.so.1";

  /// @param pci_bus_id "domain:bus:device.function", as the CUDA runtime spells it. Asks every counter once: one that
  /// fails is not asked again. Never throws for what is missing.
  explicit Nvml(const std::string& pci_bus_id, const std::string& library = driver_library);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  /// All but device_memory_taken_bytes.
  DeviceReading read();
  const DeviceLimits& limits() const { return limits_; }
  const std::string& driver_version() const { return driver_version_; }  ///< empty: unknown
  /// As DeviceMonitor::unmeasured().
  const std::map<std::string, std::string>& unmeasured() const { return unmeasured_; }

 private:
  class Library;
  struct Answer {
    double value = 0.0;   ///< in our unit
    std::string problem;  ///< empty: none
  };
  struct Counter {
    const char* name;
    double DeviceReading::*member;
    std::function<Answer()> ask;
  };
  /// Calls function(device, arguments…, Number*).
  template <typename Number, typename... Between>
  Answer ask(const char* function, double unit, Between... arguments) const;
  std::string open(const std::string& pci_bus_id);
  double value_of(const std::string& name, const Answer& answer);

  std::unique_ptr<Library> library_;
  void* device_ = nullptr;
  std::vector<Counter> counters_;  ///< those that answer
  DeviceLimits limits_;
  std::string driver_version_;
  std::map<std::string, std::string> unmeasured_;
};

}  // namespace strata::cuda
