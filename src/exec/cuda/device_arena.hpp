#pragma once

/// @file
/// The one block of GPU memory that a rank's Program runs in, poisoned at the start: reading what nobody wrote gives
/// NaN, and the highest byte ever written can be told afterwards.

#include <cstddef>
#include <cstdint>
#include <limits>

namespace strata::cuda {

enum class ArenaMemory : std::uint8_t {
  device,  ///< the GPU's own
  nccl,    ///< the GPU's own, by NCCL's allocator, so that NCCL can work in it without copies
  managed  ///< migrated by the driver on access: the host's communication engine works in it too
};

class DeviceArena {
 public:
  /// @throws OutOfMemory; Unsupported where managed memory cannot be read by the host while kernels run.
  DeviceArena(std::int64_t size_bytes, ArenaMemory memory);
  ~DeviceArena();
  DeviceArena(const DeviceArena&) = delete;
  DeviceArena& operator=(const DeviceArena&) = delete;

  /// A device address, 256-byte aligned.
  std::byte* data() const { return data_; }
  /// As at first: what is read before it was written is no number.
  void poison();
  /// One past the highest byte that no longer holds the poison, of the first @p end bytes. Slow: copies to the host.
  std::int64_t touched_bytes(std::int64_t end = std::numeric_limits<std::int64_t>::max()) const;

 private:
  std::byte* data_ = nullptr;
  std::int64_t size_bytes_ = 0;
  ArenaMemory memory_;
};

/// Page-locked host memory, that copies to and from the GPU run beside the host's work.
class PinnedMemory {
 public:
  explicit PinnedMemory(std::int64_t size_bytes);
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  std::byte* data() const { return data_; }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  std::byte* data_ = nullptr;
};

}  // namespace strata::cuda
