/// @file
/// The counters of a real GPU, by the driver's own library.

#include <gtest/gtest.h>

#include <chrono>

#include "exec/cuda/check.hpp"
#include "exec/cuda/device_arena.hpp"
#include "exec/cuda/device_info.hpp"
#include "exec/cuda/gpu_monitor.hpp"

namespace strata::cuda {
namespace {

TEST(DriverCounters, AreThoseOfTheDeviceInUse) {
  if (num_devices() == 0) GTEST_SKIP() << "no GPU";
  GpuMonitor monitor;
  for (const auto& [name, why] : monitor.unmeasured()) ADD_FAILURE() << name << ": " << why;
  EXPECT_NE(monitor.driver_version(), "");
  constexpr std::int64_t bytes = std::int64_t{1} << 30;
  const DeviceArena arena(bytes, ArenaMemory::device);
  const DeviceReading before = monitor.read();
  EXPECT_GE(before.device_memory_used_bytes, static_cast<double>(bytes));
  EXPECT_GE(before.device_memory_taken_bytes, static_cast<double>(bytes));
  EXPECT_GT(before.power_watts, 0.0);
  EXPECT_LE(before.power_watts, 1.5 * monitor.limits().power_limit_watts);
  EXPECT_GT(before.sm_clock_hertz, 1e8);
  EXPECT_LE(before.sm_clock_hertz, monitor.limits().max_sm_clock_hertz);
  EXPECT_LE(before.memory_clock_hertz, monitor.limits().max_memory_clock_hertz);
  // A second of work: the counter is a joule or more further, and no more than the limit allows.
  const auto begin = std::chrono::steady_clock::now();
  std::chrono::duration<double> spent{};
  while (spent.count() < 1.0) {
    check(cudaMemset(arena.data(), 1, static_cast<std::size_t>(bytes)), "cudaMemset");
    check(cudaDeviceSynchronize(), "cudaMemset");
    spent = std::chrono::steady_clock::now() - begin;
  }
  const double joules = monitor.read().energy_joules - before.energy_joules;
  EXPECT_GT(joules, 1.0);
  EXPECT_LE(joules, 1.5 * monitor.limits().power_limit_watts * spent.count());
}

}  // namespace
}  // namespace strata::cuda
