/// @file
/// What the driver and NCCL find in the environment of a run.

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "exec/cuda/environment.hpp"

namespace strata {
namespace {

std::string value_of(const char* variable) {
  const char* const value = std::getenv(variable);
  return value == nullptr ? "unset" : value;
}

class DeviceEnvironment : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* variable : {"CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_MODULE_LOADING", "NCCL_RUNTIME_CONNECT"}) {
      unsetenv(variable);
    }
  }
};

TEST_F(DeviceEnvironment, LoadsLazilyForOneRank) {
  cuda::set_environment(1);
  EXPECT_EQ(value_of("CUDA_DEVICE_MAX_CONNECTIONS"), "32");
  EXPECT_EQ(value_of("CUDA_MODULE_LOADING"), "unset");
  EXPECT_EQ(value_of("NCCL_RUNTIME_CONNECT"), "unset");
}

TEST_F(DeviceEnvironment, LoadsAndConnectsBeforeMessagesThatWaitForEachOther) {
  cuda::set_environment(2);
  EXPECT_EQ(value_of("CUDA_DEVICE_MAX_CONNECTIONS"), "32");
  EXPECT_EQ(value_of("CUDA_MODULE_LOADING"), "EAGER");
  EXPECT_EQ(value_of("NCCL_RUNTIME_CONNECT"), "0");
}

TEST_F(DeviceEnvironment, LeavesWhatTheUserSaid) {
  setenv("CUDA_MODULE_LOADING", "LAZY", 1);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "4", 1);
  cuda::set_environment(2);
  EXPECT_EQ(value_of("CUDA_MODULE_LOADING"), "LAZY");
  EXPECT_EQ(value_of("CUDA_DEVICE_MAX_CONNECTIONS"), "4");
}

}  // namespace
}  // namespace strata
