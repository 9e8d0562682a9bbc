#pragma once

/// @file
/// Collectives of the ranks of one node through shared memory. The tensor is cut into slices; a slice passes through at
/// most three micro-steps at every member:
///   stage  — copy what others need from me into my stage buffer;
///   reduce — combine my slice with the members' staged ones, in rank order, into the output and my result buffer;
///   gather — copy the others' results (or staged data) to the output.
/// In a reduce the members beside the root share the additions: each of them reduces its chunk of all theirs, in rank
/// order, and in the place of the gather the root adds these results and its own elements (of bf16 both are rounded).
/// Each sends n elements, which is the least, and the root reads 2 n, however many they are.
/// Buffers are doubled and the three micro-steps of different slices interleaved (stage c+1, reduce c, gather c-1), so
/// that nobody waits for a member that is less than one slice behind. A member publishes one counter; whoever waits for
/// it sleeps.

#include <cstdint>
#include <vector>

#include "comm/primitive.hpp"
#include "comm/reduce.hpp"

namespace strata::comm {

class SharedExchange final : public Machine {
 public:
  void start(const Primitive& primitive) override;
  Progress advance(std::int64_t now_ns) override;
  std::int64_t wake_ns(std::int64_t) const override { return kNever; }

 private:
  enum Step { kStage = 0, kReduce = 1, kGather = 2 };
  bool has_results() const { return p_.kind == Collective::all_reduce || p_.kind == Collective::reduce; }
  /// Whether the member has a chunk: all but the root of a reduce.
  bool has_chunk(int member) const { return p_.kind != Collective::reduce || member != p_.peer; }
  int chunk_of_member(int member) const {
    return p_.kind == Collective::reduce && member > p_.peer ? member - 1 : member;
  }
  /// Micro-step number of @p step of @p slice, counted within the operation.
  std::int64_t position(Step step, std::int64_t slice) const;
  bool exists(std::int64_t position) const;
  std::int64_t required(std::int64_t position) const;
  void execute(std::int64_t position);
  void stage(std::int64_t slice);
  void reduce_slice(std::int64_t slice);
  void gather(std::int64_t slice);
  void add_results(std::int64_t slice);
  std::int64_t num_positions() const { return 3 * (num_slices_ + 2); }

  Primitive p_;
  int num_chunks_ = 0;
  std::int64_t element_bytes_ = 0;
  std::int64_t slice_length_ = 0;  ///< elements
  std::int64_t num_slices_ = 0;
  std::int64_t position_ = 0;  ///< next micro-step
  Store store_ = Store::cached;
  std::vector<const std::byte*> inputs_;  ///< of one reduction, by member
};

}  // namespace strata::comm
