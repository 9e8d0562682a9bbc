#pragma once

/// @file
/// Stream numbers of every Program that is lowered here; links between stages follow. Where operators are laid out, the
/// collectives that change layouts have a stream of their own: the compute stream needs them soon, and what is gathered
/// or summed for later must not stand before them. Rings of ranks that pass blocks on have two each behind it.

#include "ir/plan/plan.hpp"

namespace strata {

constexpr int compute_stream = 0;
constexpr int communication_stream = 1;
constexpr int layout_stream = 2;

/// Of sums over replicas and of updated parameters that come back, in a Program of @p num_streams: where they have a
/// stream of their own it is the last one.
inline int replica_stream(const Overlap& overlap, int num_streams) {
  return overlap.replica_stream == "own" ? num_streams - 1 : communication_stream;
}

}  // namespace strata
