#pragma once

/// @file
/// Many cuts at once: a stage begins between two of a model's pieces. What a table's waits take at least with any of
/// these cuts is said so that one graph bounds all their periods:
/// - The events of a compute stream are the same ones, and what they take together, for every cut; only where a stage
///   ends and the next one begins moves, and when a pass begins or ends is monotone in that. So what comes to a pass is
///   counted as if the pass began as late as any cut lets it, and what a pass sends as if it ended as early.
/// - A message of a stage takes no less than the shortest one that has the pieces which are in the stage for sure.
/// Every cycle of waits takes no more so than with any of the cuts; of a single cut exactly as long.

#include <array>
#include <cstddef>
#include <vector>

#include "planners/cyclic/ring_graph.hpp"
#include "planners/cyclic/ring_problem.hpp"

namespace strata {

/// By stage, and behind the last one: the piece that it begins with, at least and at most; both ascend.
struct CutBox {
  std::vector<int> first{};
  std::vector<int> last{};

  /// All cuts of @p num_pieces into @p num_stages stages of one piece or more.
  static CutBox of_all(int num_pieces, int num_stages);
  bool is_one() const { return first == last; }
  RingCut cut() const { return {first.begin(), first.end() - 1}; }  ///< of a box that is one
  /// Two boxes, which together have the cuts of this one: stage @p stage begins before piece @p piece, or there or
  /// behind.
  std::array<CutBox, 2> split(int stage, int piece) const;
};

/// Seconds in front of and behind each piece, and of messages at least.
class PieceSeconds {
 public:
  PieceSeconds(const RingProblem& problem, const RingStages& stages);
  /// Of the passes of pieces [begin, end).
  double passes(int begin, int end) const;

 private:
  friend class BoxSeconds;
  /// Of pieces [0, p).
  struct Before {
    double forward = 0.0, backward = 0.0, addition = 0.0, update = 0.0;
  };
  struct Messages {
    double sum = 0.0, parameters = 0.0;
  };
  const Messages& messages(int begin, int end) const {
    return messages_[static_cast<std::size_t>(begin) * before_.size() + static_cast<std::size_t>(end)];
  }
  std::vector<Before> before_;
  std::vector<Messages> messages_;  ///< by begin and end: the shortest of a stage that has these pieces
  int num_replicas_;
  bool adds_behind_;
};

/// What waits take with any cut of a box, at least.
class BoxSeconds {
 public:
  BoxSeconds(const PieceSeconds& pieces, const CutBox& box);
  /// From the beginning of @p from to that of @p to, which waits for it.
  double operator()(const RingEvent& from, const RingEvent& to) const {
    if (!from.is_computed()) {
      const PieceSeconds::Messages& of = messages_[static_cast<std::size_t>(from.stage)];
      return from.kind == RingEvent::Kind::parameters ? of.parameters : of.sum;
    }
    const Times& of = times(from);
    if (!to.is_computed()) return of.earliest_end - of.latest_begin;
    const double begin = times(to).latest_begin;
    const bool is_next_step = to.kind == RingEvent::Kind::forward && to.stage == 0;
    return (is_next_step ? step_[stream_of(from.from)] : begin) - of.latest_begin;
  }

 private:
  /// Since the first pass of the training step has begun, where the stream waits for nothing.
  struct Times {
    double latest_begin = 0.0, earliest_end = 0.0;
  };
  static constexpr std::size_t num_streams = 3;  ///< of the first replica, those that add behind, the last one
  static constexpr std::size_t num_kinds = 4;    ///< of what is computed
  std::size_t stream_of(int replica) const { return replica + 1 == num_replicas_ ? 2 : replica > 0 ? 1 : 0; }
  const Times& times(const RingEvent& event) const {
    return times_[(stream_of(event.from) * num_kinds + static_cast<std::size_t>(event.kind)) * messages_.size() +
                  static_cast<std::size_t>(event.stage)];
  }
  int num_replicas_;
  std::array<double, num_streams> step_{};  ///< by stream: what a training step takes
  std::vector<Times> times_;                ///< by stream, kind and stage
  std::vector<PieceSeconds::Messages> messages_;
};

}  // namespace strata
