#pragma once

/// @file
/// A shape of a step that orders are made for by hand: equal stages, half of each recomputed.

#include "ir/order/step_order.hpp"

namespace strata {

/// @p stages stages of two segments, the second one recomputed.
inline StepShape stages_of_two_segments(int stages, int micro_batches) {
  StepShape shape{.micro_batches = micro_batches};
  for (int s = 0; s < 2 * stages; ++s) {
    shape.segments.push_back(
        {.stage = s / 2, .first_operator = s, .num_operators = 1, .recomputed = s % 2 == 1, .parameters = {s}});
  }
  return shape;
}

}  // namespace strata
