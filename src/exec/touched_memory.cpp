#include "exec/touched_memory.hpp"

#include <algorithm>
#include <limits>

namespace strata {
namespace {

/// Packets of quantized values hold bytes of any kind, those that memory is poisoned with too: one of which a part is
/// seen to be written is written whole.
std::int64_t with_whole_packets(const Program& program, std::int64_t written) {
  std::int64_t end = written;
  for (const Buffer& buffer : program.buffers) {
    const std::int64_t buffer_end = buffer.offset_bytes + buffer.size_bytes();
    const bool is_begun = buffer.offset_bytes < written && written < buffer_end;
    const bool is_packet = buffer.dtype == DType::u8 && buffer.category != Category::workspace;
    if (is_packet && is_begun) end = std::max(end, buffer_end);
  }
  return end;
}

/// A library keeps addresses in its workspace, and one in 256 of them has an upper byte of what memory is poisoned
/// with: the last word below @p end, of which a part is seen to be written, is written as far as there.
std::int64_t with_whole_last_word(const Program& program, std::int64_t written, std::int64_t end) {
  constexpr std::int64_t word = 8;
  const std::int64_t last_word = (end - 1) / word * word;
  const bool is_of_workspace = std::ranges::any_of(program.buffers, [&](const Buffer& buffer) {
    return buffer.category == Category::workspace && buffer.offset_bytes < written &&
           written < buffer.offset_bytes + buffer.size_bytes();
  });
  return is_of_workspace && written > last_word ? end : written;
}

}  // namespace

TouchedMemory touched_memory(const Program& program,
                             const std::function<std::int64_t(std::int64_t end)>& highest_written) {
  const std::int64_t own_end = own_arena_bytes(program);
  const bool ends_with_workspace = own_end < program.arena_bytes;
  const std::int64_t written = with_whole_packets(program, highest_written(std::numeric_limits<std::int64_t>::max()));
  return {.own_bytes = with_whole_last_word(program, with_whole_packets(program, highest_written(own_end)), own_end),
          .total_bytes = ends_with_workspace ? std::max(written, program.arena_bytes) : written};
}

}  // namespace strata
