#pragma once

/// @file
/// What happens in a training step of cyclic data parallelism on a rank a micro-batch, and what waits for what, with
/// the order that streams have it in. How long anything takes is not said: where the model is cut does not change the
/// graph, the table of fresh reads does.

#include <cstdint>
#include <vector>

#include "ir/plan/plan.hpp"

namespace strata {

/// Once a training step.
struct RingEvent {
  enum class Kind : std::uint8_t {
    forward,
    backward,
    addition,
    update,
    sum,
    finished_sum,
    token_of_forward,
    token_of_backward,
    parameters
  };
  Kind kind = Kind::forward;
  int from = 0;  ///< replica
  int to = 0;    ///< of a message; else the same
  int stage = 0;
  /// On a replica's compute stream. Else a message.
  bool is_computed() const { return kind <= Kind::update; }
};

struct RingGraph {
  /// `to` begins when `from`, of so many training steps before, is over. Where both are computed, `to` is the next one
  /// on the stream.
  struct Wait {
    int from = 0;
    int to = 0;
    int steps = 0;
  };
  std::vector<RingEvent> events{};
  std::vector<Wait> waits{};
};

/// @param schedule cyclic, a rank a micro-batch; each stage is updated behind its own backward.
/// @param known by stage: its parameters are waited for; empty: those of all stages are.
RingGraph ring_graph(const Schedule& schedule, int num_stages, const std::vector<bool>& known = {});

}  // namespace strata
