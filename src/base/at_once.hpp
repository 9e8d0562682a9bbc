#pragma once

/// @file
/// Independent pieces of work shared by a few threads.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

namespace strata {

/// @p work(i) for each i from 0 to @p count - 1, in any order, on at most @p most_threads threads, this one among them.
/// @throws what the first i of those that failed threw, once all are over.
template <class Work>
void at_once(std::size_t count, std::size_t most_threads, const Work& work) {
  std::vector<std::exception_ptr> errors(count);
  std::atomic<std::size_t> next{0};
  const auto take_turns = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      try {
        work(i);
      } catch (...) {
        errors[i] = std::current_exception();
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    try {
      while (threads.size() + 1 < std::min(count, most_threads)) threads.emplace_back(take_turns);
    } catch (const std::system_error&) {
      // The user may have no more threads: those that there are do it.
    }
    take_turns();
  }
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace strata
