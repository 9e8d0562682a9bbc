#pragma once

/// @file
/// How a rank sleeps and how others wake it: one futex word a rank in memory that its node shares. The decision: a ring
/// costs a system call only when the owner sleeps (an eventcount), so publishing progress to busy ranks is a few
/// stores.

#include <atomic>
#include <cstdint>

namespace strata::comm {

/// Lives in shared memory; zero bytes are its initial state. Its sleepers are threads of one rank, its ringers anybody.
struct alignas(64) Doorbell {
  std::atomic<std::uint32_t> num_rings{0};
  std::atomic<std::uint32_t> num_sleepers{0};

  /// Wake the owner. Whatever was stored before is visible to it afterwards.
  void ring();

  /// Owner: `ticket = prepare(); if (nothing to do) sleep(ticket, ...); else cancel();` loses no ring.
  std::uint32_t prepare();
  void cancel();
  /// Sleep until a ring after prepare() or @p deadline_ns on CLOCK_MONOTONIC.
  void sleep(std::uint32_t ticket, std::int64_t deadline_ns);
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

/// CLOCK_MONOTONIC, which is also std::chrono::steady_clock, in nanoseconds.
std::int64_t now_ns();

}  // namespace strata::comm
