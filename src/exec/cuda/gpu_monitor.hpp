#pragma once

/// @file
/// The monitor of the GPU that is current when it is made: NVML's counters, and the memory that was taken since, by the
/// CUDA runtime's account.

#include <memory>
#include <string>

#include "exec/cuda/nvml.hpp"
#include "exec/device/device_monitor.hpp"

namespace strata::cuda {

class GpuMonitor final : public DeviceMonitor {
 public:
  /// Makes the device's context if there is none yet, so that device_memory_taken_bytes is what the rank takes besides
  /// it.
  /// @throws Unsupported where there is no GPU.
  explicit GpuMonitor(const std::string& nvml_library = Nvml::driver_library);

  /// The PCI address.
  std::string device_id() const override { return pci_bus_id_; }
  std::string driver_version() const override { return nvml_.driver_version(); }
  DeviceLimits limits() const override { return nvml_.limits(); }
  DeviceReading read() override;
  const std::map<std::string, std::string>& unmeasured() const override { return nvml_.unmeasured(); }

 private:
  std::string pci_bus_id_;
  double used_before_bytes_;
  Nvml nvml_;
};

}  // namespace strata::cuda
