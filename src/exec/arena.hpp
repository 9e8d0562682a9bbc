#pragma once

/// @file
/// The one block of memory that a rank's Program runs in. It is poisoned and touched at the start, so that a step
/// neither faults pages in nor reads zeros by luck, and so that the highest byte ever written can be told afterwards.

#include <cstddef>
#include <cstdint>
#include <limits>

namespace strata {

class Arena {
 public:
  /// @throws OutOfMemory if the machine does not have @p size_bytes.
  explicit Arena(std::int64_t size_bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// 64-byte aligned.
  std::byte* data() const { return data_; }
  std::int64_t size_bytes() const { return size_bytes_; }

  /// One past the highest byte that no longer holds the poison, of the first @p end bytes; by default of all that are
  /// mapped, those behind size_bytes() too.
  std::int64_t touched_bytes(std::int64_t end = std::numeric_limits<std::int64_t>::max()) const;

 private:
  std::byte* data_ = nullptr;
  std::int64_t size_bytes_ = 0;
  std::int64_t mapped_bytes_ = 0;
};

}  // namespace strata
