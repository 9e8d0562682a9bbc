#pragma once

/// @file
/// The words every layer shares about collectives: kinds, how elements are cut into chunks, bytes on the wire.
/// One rule for uneven sizes: n elements over p ranks are cut into chunks of ceil(n/p); the last ones are short or
/// empty.

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace strata {

enum class Collective : std::uint8_t {
  all_reduce,      ///< n in, n out: every rank has the reduction
  reduce_scatter,  ///< n in, chunk(rank) out
  all_gather,      ///< chunk(rank) in, n out
  all_to_all,      ///< n in, n out, p divides n: block j of rank i becomes block i of rank j
  broadcast,       ///< n of the root, on every rank
  reduce,          ///< n in, n out at the root alone: the reduction; nobody else's output is written
  send,            ///< n to the peer
  recv,            ///< n from the peer
};
/// Number of values of Collective, for what is kept by kind.
constexpr int num_collectives = static_cast<int>(Collective::recv) + 1;

enum class Reduction : std::uint8_t { sum, max };

/// Whether its elements are combined, as a Reduction says.
constexpr bool is_reduction(Collective kind) {
  return kind == Collective::all_reduce || kind == Collective::reduce_scatter || kind == Collective::reduce;
}
/// Whether one member of the group, the root, has a part of its own.
constexpr bool is_rooted(Collective kind) { return kind == Collective::broadcast || kind == Collective::reduce; }

constexpr std::string_view to_string(Collective kind) {
  switch (kind) {
    case Collective::all_reduce: return "all_reduce";
    case Collective::reduce_scatter: return "reduce_scatter";
    case Collective::all_gather: return "all_gather";
    case Collective::all_to_all: return "all_to_all";
    case Collective::broadcast: return "broadcast";
    case Collective::reduce: return "reduce";
    case Collective::send: return "send";
    case Collective::recv: return "recv";
  }
  return "?";
}

/// Elements [begin, end) of rank @p rank when @p num_elements are cut over @p num_ranks.
struct Chunk {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  constexpr std::int64_t size() const { return end - begin; }
};
constexpr Chunk chunk_of(std::int64_t num_elements, int num_ranks, int rank) {
  const std::int64_t length = (num_elements + num_ranks - 1) / num_ranks;
  return {std::min(num_elements, length * rank), std::min(num_elements, length * (rank + 1))};
}

/// Elements that rank @p rank of @p num_ranks sends in one collective of @p num_elements (the full tensor; for
/// all_to_all what one rank holds). Reduce-scatter sends every chunk but its own, all-gather its own chunk to each
/// peer, all-reduce both; a broadcast is charged to its root once a peer, a reduce to every rank but its root once.
/// Transports forward along rings or trees, which moves the same total over all ranks. Over one rank everything is
/// zero. @p root matters for broadcast and reduce alone.
constexpr std::int64_t elements_sent(Collective kind, std::int64_t num_elements, int num_ranks, int rank,
                                     int root = 0) {
  if (num_ranks <= 1 && kind != Collective::send && kind != Collective::recv) {
    return 0;
  }
  const std::int64_t own = chunk_of(num_elements, num_ranks, rank).size();
  switch (kind) {
    case Collective::all_reduce: return (num_elements - own) + own * (num_ranks - 1);
    case Collective::reduce_scatter: return num_elements - own;
    case Collective::all_gather: return own * (num_ranks - 1);
    case Collective::all_to_all: return num_elements / num_ranks * (num_ranks - 1);
    case Collective::broadcast: return rank == root ? num_elements * (num_ranks - 1) : 0;
    case Collective::reduce: return rank == root ? 0 : num_elements;
    case Collective::send: return num_elements;
    case Collective::recv: return 0;
  }
  return 0;
}

}  // namespace strata
