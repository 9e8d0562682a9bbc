/// @file
/// The monitor of a GPU against a stand-in for the driver's library: units, and reasons for what is missing.

#include <dlfcn.h>
#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <string>

#include "cuda/fake_nvml.hpp"
#include "exec/cuda/check.hpp"
#include "exec/cuda/device_arena.hpp"
#include "exec/cuda/device_info.hpp"
#include "exec/cuda/gpu_monitor.hpp"
#include "exec/cuda/nvml.hpp"

namespace strata::cuda {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Key;
using testing::Pair;

std::string beside_this_program(const char* name) {
  return std::filesystem::read_symlink("/proc/self/exe").replace_filename(name);
}
const std::string fake_library = beside_this_program("libfake_nvml.so");
const std::string fake_old_library = beside_this_program("libfake_old_nvml.so");

class Monitor : public testing::Test {
 protected:
  Monitor() : library_(dlopen(fake_library.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    fake_ = reinterpret_cast<FakeNvmlFunction*>(dlsym(library_, "fake_nvml"))();
    *fake_ = {};
  }
  ~Monitor() override { dlclose(library_); }
  FakeNvml& fake() { return *fake_; }

 private:
  void* library_;
  FakeNvml* fake_;
};

constexpr const char* address = "0000:1a:00.0";

TEST_F(Monitor, NumbersAreInBaseUnits) {
  fake().energy_millijoules = 12'345;
  {
    Nvml nvml(address, fake_library);
    const DeviceReading reading = nvml.read();
    EXPECT_DOUBLE_EQ(reading.energy_joules, 12.345);
    EXPECT_DOUBLE_EQ(reading.power_watts, 650.25);
    EXPECT_EQ(reading.sm_clock_hertz, 1755e6);
    EXPECT_EQ(reading.memory_clock_hertz, 3201e6);
    EXPECT_EQ(reading.clock_event_reasons, 0x24);
    EXPECT_EQ(reading.device_memory_used_bytes, static_cast<double>(41LL << 30));
    EXPECT_EQ(nvml.limits().max_sm_clock_hertz, 1980e6);
    EXPECT_EQ(nvml.limits().max_memory_clock_hertz, 3202e6);
    EXPECT_EQ(nvml.limits().power_limit_watts, 700.0);
    EXPECT_EQ(nvml.driver_version(), "580.65.06");
    EXPECT_THAT(nvml.unmeasured(), IsEmpty());
    EXPECT_STREQ(fake().pci_bus_id, address);
    EXPECT_EQ(fake().num_initialized, 1);
  }
  EXPECT_EQ(fake().num_initialized, 0);
}

TEST_F(Monitor, ACounterThatIsNotSupportedIsNotZero) {
  fake().energy_status = 3;
  Nvml nvml(address, fake_library);
  EXPECT_THAT(nvml.unmeasured(),
              ElementsAre(Pair("energy_joules", "nvmlDeviceGetTotalEnergyConsumption: Not Supported")));
  const DeviceReading reading = nvml.read();
  EXPECT_TRUE(std::isnan(reading.energy_joules));
  EXPECT_DOUBLE_EQ(reading.power_watts, 650.25);
  EXPECT_EQ(fake().num_energy_queries, 1);  // when it was made, and never again
}

TEST_F(Monitor, ACounterThatFailsLaterIsNotItsLastValue) {
  Nvml nvml(address, fake_library);
  EXPECT_EQ(nvml.read().energy_joules, 0.0);
  fake().energy_status = 15;
  EXPECT_TRUE(std::isnan(nvml.read().energy_joules));
  EXPECT_THAT(nvml.unmeasured(),
              ElementsAre(Pair("energy_joules", "nvmlDeviceGetTotalEnergyConsumption: Another Problem")));
}

TEST_F(Monitor, AnOlderDriverLacksOneCounter) {
  Nvml nvml(address, fake_old_library);
  ASSERT_THAT(nvml.unmeasured(), ElementsAre(Key("clock_event_reasons")));
  EXPECT_THAT(nvml.unmeasured().at("clock_event_reasons"), HasSubstr("has no nvmlDeviceGetCurrentClocksEventReasons"));
  EXPECT_TRUE(std::isnan(nvml.read().clock_event_reasons));
  EXPECT_EQ(nvml.read().sm_clock_hertz, 1755e6);
}

void expect_nothing_measured(Nvml& nvml, const std::string& reason) {
  const DeviceReading reading = nvml.read();
  for (const double value :
       {reading.energy_joules, reading.power_watts, reading.sm_clock_hertz, reading.memory_clock_hertz,
        reading.clock_event_reasons, reading.device_memory_used_bytes, reading.device_memory_taken_bytes,
        nvml.limits().power_limit_watts, nvml.limits().max_sm_clock_hertz, nvml.limits().max_memory_clock_hertz}) {
    EXPECT_TRUE(std::isnan(value)) << value;
  }
  EXPECT_EQ(nvml.unmeasured().size(), 9U);
  for (const auto& [name, why] : nvml.unmeasured()) EXPECT_THAT(why, HasSubstr(reason)) << name;
}

TEST_F(Monitor, WithoutTheLibraryEverythingIsMissingAndWhyIsSaid) {
  Nvml nvml(address, "libno-such-nvml.so.1");
  expect_nothing_measured(nvml, "libno-such-nvml.so.1: cannot open");
  EXPECT_EQ(nvml.driver_version(), "");
}

TEST_F(Monitor, ALibraryThatDoesNotStartIsSaid) {
  fake().init_status = 9;
  Nvml nvml(address, fake_library);
  expect_nothing_measured(nvml, "nvmlInit_v2: Another Problem");
  EXPECT_EQ(fake().num_energy_queries, 0);
}

TEST_F(Monitor, ADeviceThatTheLibraryDoesNotKnowIsSaid) {
  fake().handle_status = 6;
  Nvml nvml(address, fake_library);
  expect_nothing_measured(nvml, "nvmlDeviceGetHandleByPciBusId_v2: Another Problem (0000:1a:00.0)");
  EXPECT_EQ(nvml.driver_version(), "580.65.06");
}

TEST_F(Monitor, CountsWhatIsTakenOfTheDevice) {
  if (num_devices() == 0) GTEST_SKIP() << "no GPU";
  GpuMonitor monitor(fake_library);
  EXPECT_EQ(monitor.device_id(), fake().pci_bus_id);
  const double before = monitor.read().device_memory_taken_bytes;
  // The driver may take memory of its own for the first work that it is given.
  constexpr std::int64_t bytes = std::int64_t{256} << 20;
  constexpr double drivers = 64 << 20;
  {
    const DeviceArena arena(bytes, ArenaMemory::device);
    const double taken = monitor.read().device_memory_taken_bytes - before;
    EXPECT_GE(taken, static_cast<double>(bytes));
    EXPECT_LE(taken, static_cast<double>(bytes) + drivers);
  }
  EXPECT_LE(monitor.read().device_memory_taken_bytes - before, drivers);
}

}  // namespace
}  // namespace strata::cuda
