#include "exec/touched_memory.hpp"

#include <algorithm>
#include <limits>

namespace strata {

TouchedMemory touched_memory(const Program& program,
                             const std::function<std::int64_t(std::int64_t end)>& highest_written) {
  const std::int64_t own_end = own_arena_bytes(program);
  const bool ends_with_workspace = own_end < program.arena_bytes;
  const std::int64_t written = highest_written(std::numeric_limits<std::int64_t>::max());
  return {.own_bytes = highest_written(own_end),
          .total_bytes = ends_with_workspace ? std::max(written, program.arena_bytes) : written};
}

}  // namespace strata
