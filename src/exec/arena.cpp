#include "exec/arena.hpp"

#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.hpp"

namespace strata {
namespace {

/// Read as f32 this is a quiet NaN, as bf16 too: arithmetic on memory that nobody wrote shows in the loss.
constexpr std::uint64_t poison = 0x7fd5'7fd5'7fd5'7fd5ULL;

}  // namespace

Arena::Arena(std::int64_t size_bytes) : size_bytes_(size_bytes) {
  constexpr std::int64_t page = 1 << 21;
  mapped_bytes_ = (size_bytes + page) / page * page;
  void* memory = mmap(nullptr, static_cast<std::size_t>(mapped_bytes_), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    throw OutOfMemory(
        fmt::format("OOM on the host: an arena of {} bytes cannot be mapped: {}", size_bytes, std::strerror(errno)));
  }
  madvise(memory, static_cast<std::size_t>(mapped_bytes_),
          MADV_HUGEPAGE);  // advice: fewer page faults and TLB misses where granted
  data_ = static_cast<std::byte*>(memory);
  auto* words = reinterpret_cast<std::uint64_t*>(data_);
  for (std::int64_t i = 0; i < mapped_bytes_ / 8; ++i) {
    words[i] = poison;
  }
}

Arena::~Arena() { munmap(data_, static_cast<std::size_t>(mapped_bytes_)); }

std::int64_t Arena::touched_bytes(std::int64_t end) const {
  const auto* bytes = reinterpret_cast<const unsigned char*>(data_);
  end = std::min(end, mapped_bytes_);
  unsigned char pattern[8];
  std::memcpy(pattern, &poison, 8);
  const auto is_poison = [&] { return bytes[end - 1] == pattern[(end - 1) % 8]; };
  while (end % 8 != 0 && is_poison()) --end;
  while (end > 0 && end % 8 == 0 && std::memcmp(bytes + end - 8, &poison, 8) == 0) end -= 8;
  while (end > 0 && is_poison()) --end;
  return end;
}

}  // namespace strata
