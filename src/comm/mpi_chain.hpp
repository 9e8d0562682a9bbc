#pragma once

/// @file
/// Broadcast, send and receive over MPI: data that moves in one direction, cut into segments that are forwarded as they
/// arrive. A send is a chain of two ranks seen from its head, a receive from its tail. A broadcast of one segment uses
/// a binomial tree (⌈log2 p⌉ α), a longer one a pipelined chain (about v·β); both move (p-1)·v bytes in total.

#include <array>
#include <cstdint>
#include <vector>

#include "comm/mpi_check.hpp"
#include "comm/mpi_exchange.hpp"
#include "comm/primitive.hpp"

namespace strata::comm {

class MpiChain final : public Machine {
 public:
  explicit MpiChain(const MpiMedium& medium) : medium_(medium) {}
  void start(const Primitive& primitive) override;
  Progress advance(std::int64_t now_ns) override;
  std::int64_t wake_ns(std::int64_t now_ns) const override;
  bool all_posted() const override {
    return medium_.link == nullptr && (parent_ < 0 || num_receives_posted_ == num_segments_) &&
           num_sends_posted_ == num_sends();
  }

 private:
  /// A message and, over an emulated link, the time at which it is allowed to arrive.
  struct Flight {
    std::array<MPI_Request, 2> requests{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    std::int64_t deadline_ns = 0;
  };
  void choose_neighbours();
  void post_receive(std::int64_t segment);
  void post_send(std::int64_t item, std::int64_t now_ns);
  bool landed(Flight& flight);
  Chunk segment_bytes(std::int64_t segment) const;
  std::int64_t num_sends() const { return num_segments_ * static_cast<std::int64_t>(children_.size()); }

  MpiMedium medium_;
  Primitive p_;
  int parent_ = -1;            ///< world rank; -1 at the head
  std::vector<int> children_;  ///< world ranks
  std::int64_t num_bytes_ = 0;
  std::int64_t num_segments_ = 0;
  std::int64_t num_receives_posted_ = 0;
  std::int64_t num_received_ = 0;
  std::int64_t num_sends_posted_ = 0;  ///< item = segment · children + child
  std::int64_t num_sent_ = 0;
  PollPace pace_;
  std::int64_t clock_ns_ = 0;  ///< data is here or gone, and only the emulated link's time is not up; 0: not so
  std::int64_t departed_ns_ = 0;
  std::array<Flight, kMpiWindow> receives_;
  std::array<Flight, kMpiWindow> sends_;
};

}  // namespace strata::comm
