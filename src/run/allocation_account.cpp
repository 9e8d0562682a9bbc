#include "run/allocation_account.hpp"

namespace strata::run {

void AllocationAccount::add(std::int64_t bytes) noexcept {
  num_allocations.fetch_add(1, std::memory_order_relaxed);
  const std::int64_t live = live_bytes.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  std::int64_t peak = peak_bytes.load(std::memory_order_relaxed);
  while (live > peak && !peak_bytes.compare_exchange_weak(peak, live, std::memory_order_relaxed)) {
  }
}

AllocationAccount& allocation_account() {
  static constinit AllocationAccount account;
  return account;
}

constinit thread_local bool NotWatched::is_here_ = false;

WatchAllocations::WatchAllocations() {
  AllocationAccount& account = allocation_account();
  account.live_bytes = 0;
  account.peak_bytes = 0;
  account.num_allocations = 0;
  account.watching = true;
}

}  // namespace strata::run
