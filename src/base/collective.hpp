#pragma once

/// @file
/// The words every layer shares about collectives: kinds, how elements are cut into chunks, bytes on the wire.
/// One rule for uneven sizes: n elements over p ranks are cut into chunks of ceil(n/p); the last ones are short or
/// empty. Where what is cut is not the tensor but a dim of it, members' pieces are as long as they are (Pieces).

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

namespace strata {

enum class Collective : std::uint8_t {
  all_reduce,      ///< n in, n out: every rank has the reduction
  reduce_scatter,  ///< n in, chunk(rank) out
  all_gather,      ///< chunk(rank) in, n out
  all_to_all,      ///< n in, n out, p divides n: block j of rank i becomes block i of rank j; pieces of any sizes
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

/// Where members' pieces begin in a tensor of all of them, and behind them its end, for collectives that chunk_of does
/// not cut: rows of which ranks have unequal numbers of columns, say. Of an all-gather the output has pieces, of a
/// reduce-scatter the input, and they are equal on all members; of an all-to-all both, each member's own.
struct Pieces {
  std::vector<std::int64_t> input{}, output{};  ///< members + 1 numbers, rising from 0; empty: not in pieces
  std::int64_t longest = 0;  ///< no piece that any two members exchange has more elements; equal on all members
  bool operator==(const Pieces&) const = default;
  bool empty() const { return input.empty() && output.empty(); }
};
inline Chunk piece_of(const std::vector<std::int64_t>& begins, int member) {
  const auto m = static_cast<std::size_t>(member);
  return {begins[m], begins[m + 1]};
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

/// The same of a collective in pieces: all-gather, reduce-scatter, all-to-all.
inline std::int64_t elements_sent(Collective kind, const Pieces& pieces, int rank) {
  if (kind != Collective::all_gather) return pieces.input.back() - piece_of(pieces.input, rank).size();
  return piece_of(pieces.output, rank).size() * (static_cast<std::int64_t>(pieces.output.size()) - 2);
}

}  // namespace strata
