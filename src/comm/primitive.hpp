#pragma once

/// @file
/// What a transport is asked to do, and the small interface all transports have. An operation of the engine is one or
/// a few primitives in sequence (decompose.hpp); each is a state machine that advance() moves on a bounded amount of
/// work and that never blocks. Internal to src/comm.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/collective.hpp"
#include "base/dtype.hpp"

namespace strata::comm {

class SharedArea;

/// Where the chunks of a group's members lie in a buffer of all of them, in elements: chunk j begins at
/// offset + j·stride, is at most `length` long and ends at `end` at the latest. Where there are `begins`, they say it.
struct ChunkLayout {
  std::int64_t offset = 0;
  std::int64_t stride = 0;
  std::int64_t length = 0;
  std::int64_t end = 0;
  const std::vector<std::int64_t>* begins = nullptr;  ///< of chunks, and the end; no chunk is longer than `length`

  Chunk chunk(int member) const {
    if (begins != nullptr) return piece_of(*begins, member);
    const std::int64_t begin = std::min(end, offset + stride * member);
    return {begin, std::min(end, begin + length)};
  }
  /// The part of a chunk that slice @p slice covers when chunks are cut into slices of @p slice_length.
  Chunk slice(int member, std::int64_t slice, std::int64_t slice_length) const {
    const Chunk whole = chunk(member);
    return {std::min(whole.end, whole.begin + slice * slice_length),
            std::min(whole.end, whole.begin + (slice + 1) * slice_length)};
  }
};

/// Ranks that one transport connects.
struct Members {
  std::vector<int> world_ranks;
  int index = 0;               ///< of this rank
  int tag = 0;                 ///< first of the group's MPI tags, equal on all members
  SharedArea* area = nullptr;  ///< shared memory of these members, if they have one

  int size() const { return static_cast<int>(world_ranks.size()); }
};

enum class Medium : std::uint8_t { mpi, shared_memory };

/// | kind | input | output |
/// | reduce_scatter | all chunks, by layout | own chunk |
/// | all_gather | own chunk | all chunks, by layout |
/// | all_reduce (shared memory only) | all chunks | all chunks |
/// | all_to_all | all chunks, by layout | all chunks, by output_layout |
/// | broadcast, send, recv | layout.end elements | layout.end elements |
/// | reduce | layout.end elements | layout.end elements, at the root alone |
struct Primitive {
  Medium medium = Medium::mpi;
  Collective kind = Collective::all_reduce;
  Reduction reduction = Reduction::sum;
  DType dtype = DType::f32;
  const Members* members = nullptr;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  ChunkLayout layout;         ///< of the input and the output, as far as they have chunks
  ChunkLayout output_layout;  ///< all_to_all: of the output
  int peer = 0;               ///< root or peer, index in members
  int channel = 0;            ///< operations of one group in different channels may run at the same time
  int skip_block = 0;  ///< all_to_all over MPI: leave out members of my own block of this many, who use shared memory
};

/// What advance() did, in the order of preference when several machines are combined.
enum class Progress : std::uint8_t { waiting, worked, finished };

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

class Machine {
 public:
  Machine() = default;
  virtual ~Machine() = default;
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  virtual void start(const Primitive& primitive) = 0;
  /// Do at most one segment's work. @p now_ns is steady_clock.
  virtual Progress advance(std::int64_t now_ns) = 0;
  /// After `waiting`: when to look again at the latest; kNever where a doorbell will ring.
  virtual std::int64_t wake_ns(std::int64_t now_ns) const = 0;
  /// Every message of it is on its way or has arrived: who comes after may use the wire while they land.
  virtual bool all_posted() const { return false; }
  /// Bytes handed to other ranks since start().
  std::int64_t bytes_sent() const { return bytes_sent_; }
  int kind = 0;  ///< where the driver keeps it when it is idle

 protected:
  std::int64_t bytes_sent_ = 0;
};

}  // namespace strata::comm
