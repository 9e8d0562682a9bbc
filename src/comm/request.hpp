#pragma once

/// @file
/// One communication operation, as the executor posts it.

#include <cstdint>
#include <span>
#include <string_view>

#include "base/collective.hpp"
#include "base/dtype.hpp"

namespace strata::comm {

/// Names a posted operation, or those that were posted together, until their slots are used again. The default names
/// nothing and is always done.
struct Ticket {
  std::uint64_t id = 0;  ///< of several the last; they are numbered one after the other
  std::uint64_t count = 1;
  std::uint64_t first() const { return id - (count - 1); }
};

/// Buffers stay valid and untouched until the operation is done. In place: all_reduce, broadcast and reduce with input
/// == output; all_gather whose input is the own chunk of the output; reduce_scatter whose output is the own chunk of
/// the input. Otherwise input and output do not overlap. Chunks are those of chunk_of(num_elements, group size, index),
/// or the pieces.
struct Request {
  Collective kind = Collective::all_reduce;
  Reduction reduction = Reduction::sum;
  const void* input = nullptr;     ///< recv: unused. broadcast: read on the root only
  void* output = nullptr;          ///< send: unused. reduce: written on the root only, elsewhere it may be null
  std::int64_t num_elements = 0;   ///< of the full tensor, see Collective; equal on all members, but for pieces' sake
  const Pieces* pieces = nullptr;  ///< null: chunk_of cuts; outlives the operation
  DType dtype = DType::f32;        ///< reductions: f32, bf16
  int group = 0;                   ///< what create_group() returned
  int peer = 0;                    ///< broadcast, reduce: the root; send, recv: the other side; index in the group
  int stream = 0;                  ///< operations of one stream follow one another
  std::span<const Ticket> after;   ///< must be done first; read during post() only
  std::string_view label;          ///< the instruction's text, for the watchdog; outlives the operation
};

}  // namespace strata::comm
