#pragma once

/// @file
/// Bytes that the process allocates outside of the arena while it is being watched. Kept by the replacements of malloc
/// and friends in interpose_malloc.cpp, which only the strata binary links (sanitizers bring their own); elsewhere the
/// account stays empty and says so.

#include <atomic>
#include <cstdint>

namespace strata::run {

struct AllocationAccount {
  std::atomic<bool> interposed{false};  ///< the replacements are linked in
  std::atomic<bool> watching{false};
  std::atomic<std::int64_t> live_bytes{0};  ///< allocated minus freed since watching began; may be negative
  std::atomic<std::int64_t> peak_bytes{0};
  std::atomic<std::int64_t> num_allocations{0};

  void add(std::int64_t bytes) noexcept;
  void remove(std::int64_t bytes) noexcept { live_bytes.fetch_sub(bytes, std::memory_order_relaxed); }
};

AllocationAccount& allocation_account();

/// Watches while it lives.
class WatchAllocations {
 public:
  WatchAllocations();
  ~WatchAllocations() { allocation_account().watching = false; }
  WatchAllocations(const WatchAllocations&) = delete;
  WatchAllocations& operator=(const WatchAllocations&) = delete;
  std::int64_t peak_bytes() const { return allocation_account().peak_bytes; }
};

/// While it lives, what this thread allocates is no part of the account: it works beside the steps, not for them.
class NotWatched {
 public:
  NotWatched() { is_here_ = true; }
  ~NotWatched() { is_here_ = false; }
  NotWatched(const NotWatched&) = delete;
  NotWatched& operator=(const NotWatched&) = delete;
  static bool is_here() noexcept { return is_here_; }

 private:
  static constinit thread_local bool is_here_;
};

}  // namespace strata::run
