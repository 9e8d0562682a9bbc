#include "exec/cuda/device_arena.hpp"

#include <fmt/core.h>
#include <nccl.h>

#include <algorithm>
#include <vector>

#include "base/error.hpp"
#include "exec/cuda/check.hpp"
#include "exec/cuda/communicators.hpp"

namespace strata::cuda {
namespace {

constexpr int poison_byte = 0xff;  // NaN as f32 and as bf16, -1 as an integer

}  // namespace

DeviceArena::DeviceArena(std::int64_t size_bytes, ArenaMemory memory) : size_bytes_(size_bytes), memory_(memory) {
  // An empty Program has an arena too.
  const auto bytes = static_cast<std::size_t>(std::max<std::int64_t>(size_bytes, 1));
  void* data = nullptr;
  if (memory == ArenaMemory::managed) {
    int device = 0;
    int concurrent = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    check(cudaDeviceGetAttribute(&concurrent, cudaDevAttrConcurrentManagedAccess, device), "managed memory");
    if (concurrent == 0) {
      throw Unsupported(
          "collectives through the host need managed memory that the host may use while kernels run, "
          "which this GPU and driver do not offer");
    }
    check(cudaMallocManaged(&data, bytes), "the arena");
  } else if (memory == ArenaMemory::nccl) {
    const ncclResult_t result = ncclMemAlloc(&data, bytes);
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    // NCCL does not tell a full device from other failures.
    if (result != ncclSuccess && cudaMemGetInfo(&free_bytes, &total_bytes) == cudaSuccess && bytes > free_bytes) {
      throw OutOfMemory(
          fmt::format("the arena: {} bytes of NCCL's memory, {} of {} are free", bytes, free_bytes, total_bytes));
    }
    check(result, "the arena");
  } else {
    check(cudaMalloc(&data, bytes), "the arena");
  }
  data_ = static_cast<std::byte*>(data);
  poison();
}

void DeviceArena::poison() {
  check(cudaMemset(data_, poison_byte, static_cast<std::size_t>(std::max<std::int64_t>(size_bytes_, 1))),
        "the arena's poison");
  check(cudaDeviceSynchronize(), "the arena's poison");
}

DeviceArena::~DeviceArena() {
  // Nothing can be done about a failure here.
  if (memory_ == ArenaMemory::nccl) {
    static_cast<void>(ncclMemFree(data_));
  } else {
    static_cast<void>(cudaFree(data_));
  }
}

std::int64_t DeviceArena::touched_bytes(std::int64_t end) const {
  constexpr std::int64_t block = std::int64_t{64} << 20;
  std::vector<unsigned char> bytes(static_cast<std::size_t>(std::min(block, size_bytes_)));
  for (end = std::min(end, size_bytes_); end > 0; end -= block) {
    const std::int64_t begin = std::max<std::int64_t>(0, end - block);
    const auto count = static_cast<std::size_t>(end - begin);
    check(cudaMemcpy(bytes.data(), data_ + begin, count, cudaMemcpyDefault), "reading the arena");
    for (std::size_t i = count; i > 0; --i) {
      if (bytes[i - 1] != poison_byte) return begin + static_cast<std::int64_t>(i);
    }
  }
  return 0;
}

PinnedMemory::PinnedMemory(std::int64_t size_bytes) {
  void* data = nullptr;
  check(cudaMallocHost(&data, static_cast<std::size_t>(std::max<std::int64_t>(size_bytes, 1))), "pinned memory");
  data_ = static_cast<std::byte*>(data);
}

PinnedMemory::~PinnedMemory() { static_cast<void>(cudaFreeHost(data_)); }

}  // namespace strata::cuda
