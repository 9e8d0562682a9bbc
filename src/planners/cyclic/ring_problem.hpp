#pragma once

/// @file
/// What is looked for where cyclic data parallelism on a rank a micro-batch is planned: where the model is cut into
/// stages, and which micro-batches read which stages fresh.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "ir/plan/plan.hpp"
#include "partition/fresh_table.hpp"
#include "planners/cyclic/ring_period.hpp"

namespace strata {

/// What stands between two neighbouring places at which a stage may begin: seconds of one micro-batch, bytes that
/// travel.
struct RingPiece {
  double forward = 0.0;
  double backward = 0.0;
  double addition = 0.0;  ///< of gradients to a sum, where the schedule adds them behind the backward
  double update = 0.0;
  std::int64_t gradient_bytes = 0;
  std::int64_t parameter_bytes = 0;
};

struct RingProblem {
  std::vector<RingPiece> pieces{};
  std::function<double(std::int64_t bytes)> message_seconds{};  ///< of a rank to another, alone
  Schedule schedule{};  ///< micro-batches, sum, spread and spare stages; its table is what is looked for
  int num_stages = 1;   ///< at most as many as pieces
  double within = 1.0;  ///< of the least period: as many times as long may a step be that is fresher
};

/// Pieces that the stages begin with, ascending from 0.
using RingCut = std::vector<int>;

struct RingChoice {
  RingCut cut{};
  FreshTable fresh{};
  double period_seconds = 0.0;
  int num_fresh = 0;
};

/// Stages of a problem, priced.
class RingStages {
 public:
  explicit RingStages(const RingProblem& problem);
  int num_pieces() const { return num_pieces_; }
  /// Of pieces [begin, end). What is empty is no message.
  const StageSeconds& seconds(int begin, int end) const {
    return seconds_[static_cast<std::size_t>(begin) * static_cast<std::size_t>(num_pieces_ + 1) +
                    static_cast<std::size_t>(end)];
  }
  std::vector<StageSeconds> seconds(const RingCut& cut) const;
  /// Of all pieces from @p begin on.
  const StageSeconds& from(int begin) const { return seconds(begin, num_pieces_); }

 private:
  int num_pieces_;
  std::vector<StageSeconds> seconds_;  ///< by begin and end
};

}  // namespace strata
