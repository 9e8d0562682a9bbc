#pragma once

/// @file
/// Reduce-scatter, all-gather and all-to-all over MPI point-to-point. The decision: *pairwise* exchange instead of a
/// neighbour ring. In step s every rank sends to (index + s) and receives from (index - s); p-1 steps of v/p bytes, the
/// ring's own cost (p-1)(α + v/p·β), but a partial sum never travels: no workspace beyond the segments in flight, every
/// rank sends exactly elements_sent(), and steps do not depend on each other, so small messages go out all at once.

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/emulated/emulated_link.hpp"
#include "comm/mpi/mpi_check.hpp"
#include "comm/primitive.hpp"

namespace strata::comm {

/// What the MPI machines of one engine share.
struct MpiMedium {
  MPI_Comm communicator = MPI_COMM_NULL;
  OutgoingLinks* links = nullptr;  ///< null: nothing is emulated
};

/// How long a driver may sleep while an MPI request is pending: MPI cannot ring a doorbell. A few looks between two
/// messages at the pace at which they come, because each look costs the rank's compute a switch of threads: often on a
/// fast wire, seldom on a slow one.
class PollPace {
 public:
  /// A new operation: its pace is not known yet.
  void reset() { *this = {}; }
  /// The operation begins, or a message is complete.
  void event(std::int64_t now_ns);
  bool has_begun() const { return last_event_ns_ != 0; }
  std::int64_t wake_ns(std::int64_t now_ns) const;

 private:
  std::int64_t last_event_ns_ = 0;
  std::int64_t gap_ns_ = 0;  ///< between the last two events
};

/// Segments are this long, and this many are in flight.
constexpr std::int64_t kMpiSegmentBytes = 256 * 1024;
constexpr int kMpiWindow = 4;

class MpiExchange final : public Machine {
 public:
  explicit MpiExchange(const MpiMedium& medium) : medium_(medium) {}
  void start(const Primitive& primitive) override;
  Progress advance(std::int64_t now_ns) override;
  std::int64_t wake_ns(std::int64_t now_ns) const override;
  bool all_posted() const override { return medium_.links == nullptr && num_posted_ == num_items_; }

 private:
  /// One segment of one step.
  struct Flight {
    std::array<MPI_Request, 2> requests{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    Chunk own;  ///< elements of the own chunk that arrive here (reductions)
  };
  int step_of(std::int64_t item) const { return static_cast<int>(item / segments_per_step_) + 1; }
  bool starts_step(std::int64_t item) const { return item % segments_per_step_ == 0; }
  void post(std::int64_t item, std::int64_t now_ns);
  void post_deadlines(int step, std::int64_t now_ns);
  void keep_own(std::int64_t segment);
  bool complete(std::int64_t item, std::int64_t now_ns);
  bool skips(int member) const;
  std::byte* scratch(std::int64_t item);

  MpiMedium medium_;
  Primitive p_;
  std::int64_t element_bytes_ = 0;
  std::int64_t segment_length_ = 0;  ///< elements
  std::int64_t segments_per_step_ = 0;
  std::int64_t num_items_ = 0;
  std::int64_t num_posted_ = 0;
  std::int64_t num_done_ = 0;
  PollPace pace_;
  std::array<Flight, kMpiWindow> flights_;
  std::vector<std::byte> scratch_;  ///< kMpiWindow segments, allocated by the first reduction

  // Emulated link: the current step's departure here and arrival from the other side.
  std::array<MPI_Request, 2> deadline_requests_{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  std::int64_t my_deadline_ns_ = 0;
  std::int64_t their_deadline_ns_ = 0;
  bool awaits_clock_ = false;  ///< all data is here, only the link's time is not up
};

}  // namespace strata::comm
