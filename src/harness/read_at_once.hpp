#pragma once

/// @file
/// Small files of many points, read beside each other: on a parallel or network file system each call waits for a
/// server, milliseconds long, and a reader that waits needs no processor.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

namespace strata::harness {

/// More would be a burden for the server that others use too.
inline constexpr std::size_t most_reads_at_once = 32;

/// @p read(i) for each i from 0 to @p count - 1, in any order, in several threads. @throws what the first i of those
/// that failed threw, once all are over.
template <class Read>
void read_at_once(std::size_t count, const Read& read) {
  std::vector<std::exception_ptr> errors(count);
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      try {
        read(i);
      } catch (...) {
        errors[i] = std::current_exception();
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    try {
      while (threads.size() + 1 < std::min(count, most_reads_at_once)) threads.emplace_back(work);
    } catch (const std::system_error&) {
      // The user may have no more threads: those that there are do it.
    }
    work();
  }
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace strata::harness
