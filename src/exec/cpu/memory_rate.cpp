#include "exec/cpu/memory_rate.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <vector>

namespace strata::cpu {

double measure_memory_bytes_per_second() {
  constexpr std::size_t num_bytes = std::size_t{64} << 20U;
  std::vector<char> from(num_bytes, 1);
  std::vector<char> to(num_bytes, 2);
  double best = 0.0;
  for (int i = 0; i < 3; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    std::memcpy(to.data(), from.data(), num_bytes);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    from[static_cast<std::size_t>(i)] = to[num_bytes - 1];  // the copy is used
    best = std::max(best, 2.0 * static_cast<double>(num_bytes) / seconds);
  }
  return best;
}

}  // namespace strata::cpu
