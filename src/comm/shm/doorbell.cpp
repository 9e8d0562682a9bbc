/// @file
/// A doorbell is a futex in memory that processes share: it is rung and slept on here.

#include "comm/shm/doorbell.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace strata::comm {

void Doorbell::ring() {
  // The fence orders the caller's data stores before the look at `num_sleepers`; prepare() has its counterpart. Either
  // the owner sees the data when it looks again, or it is seen sleeping here.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (num_sleepers.load(std::memory_order_relaxed) != 0) {
    num_rings.fetch_add(1, std::memory_order_seq_cst);
    syscall(SYS_futex, &num_rings, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
}

std::uint32_t Doorbell::prepare() {
  const std::uint32_t ticket = num_rings.load(std::memory_order_acquire);
  num_sleepers.fetch_add(1, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return ticket;
}

void Doorbell::cancel() { num_sleepers.fetch_sub(1, std::memory_order_release); }

void Doorbell::sleep(std::uint32_t ticket, std::int64_t deadline_ns) {
  timespec deadline{};
  deadline.tv_sec = deadline_ns / 1'000'000'000;
  deadline.tv_nsec = deadline_ns % 1'000'000'000;
  // Spurious returns are harmless: the driver looks around again.
  syscall(SYS_futex, &num_rings, FUTEX_WAIT_BITSET, ticket, &deadline, nullptr, FUTEX_BITSET_MATCH_ANY);
  cancel();
}

std::int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

}  // namespace strata::comm
