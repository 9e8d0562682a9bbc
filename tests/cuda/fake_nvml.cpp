#include "cuda/fake_nvml.hpp"

#include <cstring>

namespace {

FakeNvml state;
int device;  // its address is the handle

constexpr int invalid_argument = 2;

struct Memory {
  unsigned long long total, free, used;
};

bool is_device(const void* handle) { return handle == &device; }

}  // namespace

extern "C" {
FakeNvml* fake_nvml() { return &state; }

int nvmlInit_v2() {
  if (state.init_status == 0) ++state.num_initialized;
  return state.init_status;
}
int nvmlShutdown() { return --state.num_initialized, 0; }
const char* nvmlErrorString(int status) { return status == 3 ? "Not Supported" : "Another Problem"; }
int nvmlSystemGetDriverVersion(char* version, unsigned size) {
  if (size < 80) return invalid_argument;
  std::strcpy(version, "580.65.06");
  return 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* pci_bus_id, void** handle) {
  std::strncpy(state.pci_bus_id, pci_bus_id, sizeof state.pci_bus_id - 1);
  *handle = &device;
  return state.handle_status;
}
int nvmlDeviceGetTotalEnergyConsumption(void* handle, unsigned long long* millijoules) {
  ++state.num_energy_queries;
  *millijoules = state.energy_millijoules;
  return is_device(handle) ? state.energy_status : invalid_argument;
}
int nvmlDeviceGetPowerUsage(void* handle, unsigned* milliwatts) {
  *milliwatts = 650'250;
  return is_device(handle) ? 0 : invalid_argument;
}
int nvmlDeviceGetEnforcedPowerLimit(void* handle, unsigned* milliwatts) {
  *milliwatts = 700'000;
  return is_device(handle) ? 0 : invalid_argument;
}
int nvmlDeviceGetClockInfo(void* handle, int type, unsigned* megahertz) {
  if (type != 1 && type != 2) return invalid_argument;
  *megahertz = type == 1 ? 1755 : 3201;
  return is_device(handle) ? 0 : invalid_argument;
}
int nvmlDeviceGetMaxClockInfo(void* handle, int type, unsigned* megahertz) {
  if (type != 1 && type != 2) return invalid_argument;
  *megahertz = type == 1 ? 1980 : 3202;
  return is_device(handle) ? 0 : invalid_argument;
}
#ifndef STRATA_OLD_NVML
int nvmlDeviceGetCurrentClocksEventReasons(void* handle, unsigned long long* reasons) {
  *reasons = 0x4 | 0x20;
  return is_device(handle) ? 0 : invalid_argument;
}
#endif
int nvmlDeviceGetMemoryInfo(void* handle, Memory* memory) {
  *memory = {.total = 141ULL << 30, .free = 100ULL << 30, .used = 41ULL << 30};
  return is_device(handle) ? 0 : invalid_argument;
}
}
