/// @file
/// The functions of NVML that are called are declared by their use: nvml.h is not part of every toolkit. Their
/// parameters and units are those of NVIDIA's "NVML API Reference".

#include "exec/cuda/nvml.hpp"

#include <dlfcn.h>
#include <fmt/core.h>

namespace strata::cuda {
namespace {

using Status = int;                 // nvmlReturn_t
constexpr Status nvml_success = 0;  // NVML_SUCCESS
using NvmlDevice = void*;           // nvmlDevice_t

// nvmlClockType_t
constexpr int sm_clock = 1;
constexpr int memory_clock = 2;

struct Memory {  // nvmlMemory_t
  unsigned long long total_bytes, free_bytes, used_bytes;
};

constexpr unsigned driver_version_size = 80;  // NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE

}  // namespace

class Nvml::Library {
 public:
  explicit Library(const std::string& name) : name_(name), handle_(dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    // dlerror names the library.
    if (handle_ == nullptr) problem_ = dlerror();
    if (problem_.empty()) problem_ = call("nvmlInit_v2");
    is_initialized_ = problem_.empty();
  }
  ~Library() {
    // Nothing can be done about a failure here.
    if (is_initialized_) static_cast<void>(call("nvmlShutdown"));
    if (handle_ != nullptr) dlclose(handle_);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  /// Why no function can be called; empty: they can.
  const std::string& problem() const { return problem_; }

  /// @return what went wrong; empty: nothing.
  template <typename... Parameters>
  std::string call(const char* function, Parameters... arguments) const {
    const auto call_it = find<Status(Parameters...)>(function);
    if (call_it == nullptr) return fmt::format("{} has no {}", name_, function);
    const Status status = call_it(arguments...);
    return status == nvml_success ? "" : fmt::format("{}: {}", function, text_of(status));
  }

 private:
  template <typename Function>
  Function* find(const char* function) const {
    return reinterpret_cast<Function*>(dlsym(handle_, function));
  }
  std::string text_of(Status status) const {
    const auto error_string = find<const char*(Status)>("nvmlErrorString");
    return error_string != nullptr ? error_string(status) : fmt::format("status {}", status);
  }

  std::string name_;
  void* handle_;
  std::string problem_;
  bool is_initialized_ = false;
};

template <typename Number, typename... Between>
Nvml::Answer Nvml::ask(const char* function, double unit, Between... arguments) const {
  Number number = 0;
  std::string problem = library_->call(function, device_, arguments..., &number);
  return {static_cast<double>(number) * unit, std::move(problem)};
}

Nvml::Nvml(const std::string& pci_bus_id, const std::string& library) : library_(std::make_unique<Library>(library)) {
  constexpr double milli = 1e-3;
  constexpr double mega = 1e6;
  const std::string problem = open(pci_bus_id);
  using Wide = unsigned long long;
  const std::vector<Counter> counters = {
      {"energy_joules", &DeviceReading::energy_joules,
       [this] { return ask<Wide>("nvmlDeviceGetTotalEnergyConsumption", milli); }},
      {"power_watts", &DeviceReading::power_watts, [this] { return ask<unsigned>("nvmlDeviceGetPowerUsage", milli); }},
      {"sm_clock_hertz", &DeviceReading::sm_clock_hertz,
       [this] { return ask<unsigned>("nvmlDeviceGetClockInfo", mega, sm_clock); }},
      {"memory_clock_hertz", &DeviceReading::memory_clock_hertz,
       [this] { return ask<unsigned>("nvmlDeviceGetClockInfo", mega, memory_clock); }},
      {"clock_event_reasons", &DeviceReading::clock_event_reasons,
       [this] { return ask<Wide>("nvmlDeviceGetCurrentClocksEventReasons", 1.0); }},
      {"device_memory_used_bytes", &DeviceReading::device_memory_used_bytes, [this] {
         Memory memory{};
         std::string failed = library_->call("nvmlDeviceGetMemoryInfo", device_, &memory);
         return Answer{static_cast<double>(memory.used_bytes), std::move(failed)};
       }}};
  for (const Counter& counter : counters) {
    const Answer answer = problem.empty() ? counter.ask() : Answer{0.0, problem};
    value_of(counter.name, answer);
    if (answer.problem.empty()) counters_.push_back(counter);
  }
  const auto limit = [&](const char* name, const auto& ask_it) {
    return value_of(name, problem.empty() ? ask_it() : Answer{0.0, problem});
  };
  limits_.max_sm_clock_hertz =
      limit("max_sm_clock_hertz", [&] { return ask<unsigned>("nvmlDeviceGetMaxClockInfo", mega, sm_clock); });
  limits_.max_memory_clock_hertz =
      limit("max_memory_clock_hertz", [&] { return ask<unsigned>("nvmlDeviceGetMaxClockInfo", mega, memory_clock); });
  limits_.power_limit_watts =
      limit("power_limit_watts", [&] { return ask<unsigned>("nvmlDeviceGetEnforcedPowerLimit", milli); });
}

Nvml::~Nvml() = default;

/// @return why the device cannot be asked; empty: it can.
std::string Nvml::open(const std::string& pci_bus_id) {
  if (!library_->problem().empty()) return library_->problem();
  char version[driver_version_size] = {};
  if (library_->call("nvmlSystemGetDriverVersion", &version[0], driver_version_size).empty()) {
    driver_version_ = version;
  }
  NvmlDevice device = nullptr;
  const std::string problem = library_->call("nvmlDeviceGetHandleByPciBusId_v2", pci_bus_id.c_str(), &device);
  device_ = device;
  return problem.empty() ? "" : fmt::format("{} ({})", problem, pci_bus_id);
}

DeviceReading Nvml::read() {
  DeviceReading reading;
  for (const Counter& counter : counters_) reading.*counter.member = value_of(counter.name, counter.ask());
  return reading;
}

double Nvml::value_of(const std::string& name, const Answer& answer) {
  if (answer.problem.empty()) return answer.value;
  unmeasured_[name] = answer.problem;
  return DeviceReading::unknown;
}

}  // namespace strata::cuda
