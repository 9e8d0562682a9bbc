#pragma once

/// @file
/// Broadcast, reduce, send and receive over MPI: data that moves in one direction, cut into segments that are forwarded
/// as they arrive, by a reduce with the own elements added. A send is a chain of two ranks seen from its head, a
/// receive from its tail. A broadcast of one segment uses a binomial tree (⌈log2 p⌉ α), a longer one a pipelined chain
/// (about v·β); a reduce goes the same ways backwards. All move (p-1)·v bytes in total, a reduce v from every rank but
/// the root.
///
/// A reduce adds in an order that depends on the members alone. At distance d from the root, counted in group order and
/// round its end, a rank of the chain adds what distance d+1 sends to its own; one of the tree adds to its own what
/// distances d+1, d+2, d+4, … send, as far as they are below it. bf16 is rounded after each addition.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/mpi/mpi_check.hpp"
#include "comm/mpi/mpi_exchange.hpp"
#include "comm/primitive.hpp"

namespace strata::comm {

class MpiChain final : public Machine {
 public:
  /// Of a machine that reduces: segments that arrive and, beside them, sums that leave.
  static constexpr std::int64_t kScratchBytes = 2 * kMpiWindow * kMpiSegmentBytes;

  explicit MpiChain(const MpiMedium& medium) : medium_(medium) {}
  void start(const Primitive& primitive) override;
  Progress advance(std::int64_t now_ns) override;
  std::int64_t wake_ns(std::int64_t now_ns) const override;
  bool all_posted() const override {
    return medium_.links == nullptr && num_receives_posted_ == num_receives() && num_sends_posted_ == num_sends();
  }

 private:
  /// A message and, over an emulated link, the time at which it is allowed to arrive.
  struct Flight {
    std::array<MPI_Request, 2> requests{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    std::int64_t deadline_ns = 0;
  };
  void choose_neighbours();
  void post_receive(std::int64_t item);
  void post_send(std::int64_t item, std::int64_t now_ns);
  bool landed(Flight& flight);
  bool has_place(std::int64_t item) const;
  void add(std::int64_t item);
  bool reduces() const { return p_.kind == Collective::reduce; }
  Chunk segment_bytes(std::int64_t segment) const;
  std::byte* arrival(std::int64_t item);
  std::byte* result(std::int64_t segment);
  std::int64_t num_sources() const { return static_cast<std::int64_t>(sources_.size()); }
  std::int64_t num_targets() const { return static_cast<std::int64_t>(targets_.size()); }
  std::int64_t num_receives() const { return num_segments_ * num_sources(); }
  std::int64_t num_sends() const { return num_segments_ * num_targets(); }
  /// Segments that may be sent: all is here that belongs to them.
  std::int64_t num_ready() const { return sources_.empty() ? num_segments_ : num_received_ / num_sources(); }

  MpiMedium medium_;
  Primitive p_;
  std::vector<int> sources_;  ///< world ranks; none: the segments begin here
  std::vector<int> targets_;  ///< world ranks; of a reduce one, or none at the root
  std::int64_t num_bytes_ = 0;
  std::int64_t num_segments_ = 0;
  std::int64_t num_receives_posted_ = 0;  ///< item = segment · sources + source
  std::int64_t num_received_ = 0;
  std::int64_t num_sends_posted_ = 0;  ///< item = segment · targets + target
  std::int64_t num_sent_ = 0;
  PollPace pace_;
  std::int64_t clock_ns_ = 0;  ///< data is here or gone, and only the emulated link's time is not up; 0: not so
  std::int64_t departed_ns_ = 0;
  std::array<Flight, kMpiWindow> receives_;
  std::array<Flight, kMpiWindow> sends_;
  std::vector<std::byte> scratch_;  ///< kScratchBytes, allocated by the first reduce that receives
};

}  // namespace strata::comm
