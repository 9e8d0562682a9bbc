#pragma once

/// @file
/// Which memory an operation reads and writes. Internal to src/comm.

#include <cstddef>

#include "comm/request.hpp"

namespace strata::comm {

struct Bytes {
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;
  bool overlaps(const Bytes& other) const { return begin < other.end && other.begin < end; }
};

struct Footprint {
  Bytes read;
  Bytes written;
};

/// Of @p request on member @p index of a group of @p size.
Footprint footprint(const Request& request, int size, int index);

/// True if the two may run at the same time and leave what they leave one after the other.
inline bool independent(const Footprint& a, const Footprint& b) {
  return !a.written.overlaps(b.written) && !a.written.overlaps(b.read) && !a.read.overlaps(b.written);
}

}  // namespace strata::comm
