#pragma once

/// @file
/// Small files of many points, read beside each other: on a parallel or network file system each call waits for a
/// server, milliseconds long, and a reader that waits needs no processor.

#include <cstddef>

#include "base/at_once.hpp"

namespace strata::harness {

/// More would be a burden for the server that others use too.
inline constexpr std::size_t most_reads_at_once = 32;

/// As at_once().
template <class Read>
void read_at_once(std::size_t count, const Read& read) {
  at_once(count, most_reads_at_once, read);
}

}  // namespace strata::harness
