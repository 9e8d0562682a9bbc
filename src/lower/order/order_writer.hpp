#pragma once

/// @file
/// What generators write orders with: passes of a stage instead of items of its segments.

#include <vector>

#include "ir/order/step_order.hpp"

namespace strata {

class OrderWriter {
 public:
  OrderWriter(const StepShape& shape, int stage) : OrderWriter(shape, std::vector<int>{stage}) {}
  /// Of a rank with several stages, ascending.
  OrderWriter(const StepShape& shape, std::vector<int> stages);

  /// All segments of the first stage, the first one first; of sub-batches in turn.
  void forward(int micro_batch) { forward(stages_.front(), micro_batch); }
  void forward(int stage, int micro_batch);
  /// All segments of the first stage, the last one first, each recomputed before it where it is; of sub-batches in
  /// turn.
  void backward(int micro_batch) { backward(stages_.front(), micro_batch); }
  void backward(int stage, int micro_batch);
  /// All parameters of the stages: here, or, where they are to be updated in backward, each behind the backward that
  /// follows the one which completes its gradients, under which they are summed. Those that other stages read too wait
  /// for these, so until here.
  void update();

  StepOrder take() && { return std::move(order_); }

 private:
  void update_in_backward();
  const Segment& segment_of(const OrderItem& item) const {
    return order_.shape.segments[static_cast<std::size_t>(item.segment)];
  }

  StepOrder order_;
  std::vector<int> stages_;
};

}  // namespace strata
