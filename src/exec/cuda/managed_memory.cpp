/// @file
/// Managed memory outside of an executor.

#include <cuda_runtime_api.h>

#include "exec/cuda/check.hpp"
#include "exec/cuda/device_arena.hpp"
#include "exec/cuda_backend.hpp"

namespace strata::cuda {
namespace {

class ManagedArena final : public ManagedMemory {
 public:
  explicit ManagedArena(std::int64_t size_bytes) : memory_(size_bytes, ArenaMemory::managed) {}
  std::byte* data() const override { return memory_.data(); }
  void write_on_device(std::int64_t size_bytes) override {
    check(cudaMemset(memory_.data(), 0, static_cast<std::size_t>(size_bytes)), "writing managed memory");
    check(cudaDeviceSynchronize(), "writing managed memory");
  }

 private:
  DeviceArena memory_;
};

}  // namespace

std::unique_ptr<ManagedMemory> make_managed_memory(std::int64_t size_bytes) {
  return std::make_unique<ManagedArena>(size_bytes);
}

}  // namespace strata::cuda
