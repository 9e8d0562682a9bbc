#include "exec/cuda/gpu_monitor.hpp"

#include <cuda_runtime_api.h>

#include "exec/cuda/check.hpp"

namespace strata::cuda {
namespace {

std::string pci_bus_id() {
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  char id[32] = {};  // "domain:bus:device.function" has 13 characters
  check(cudaDeviceGetPCIBusId(&id[0], sizeof id, device), "cudaDeviceGetPCIBusId");
  return id;
}

/// By all processes on the current device.
double used_bytes() {
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  check(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
  return static_cast<double>(total_bytes - free_bytes);
}

}  // namespace

GpuMonitor::GpuMonitor(const std::string& nvml_library)
    : pci_bus_id_(pci_bus_id()), used_before_bytes_(used_bytes()), nvml_(pci_bus_id_, nvml_library) {}

DeviceReading GpuMonitor::read() {
  DeviceReading reading = nvml_.read();
  reading.device_memory_taken_bytes = used_bytes() - used_before_bytes_;
  return reading;
}

}  // namespace strata::cuda
