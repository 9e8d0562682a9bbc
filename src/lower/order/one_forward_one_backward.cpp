/// @file
/// min(M, S - s - 1) forwards, then a forward and a backward in turn, then the backwards that are left; backwards in
/// the order of micro-batches. At most min(M, S - s) micro-batches are between their two passes.
///
/// Source: Narayanan et al., PipeDream, SOSP 2019, in the form that flushes every step (Narayanan et al., Megatron-LM,
/// SC 2021, sec. 2.2.1).

#include <algorithm>

#include "lower/order/order_writer.hpp"
#include "lower/order/schedules.hpp"

namespace strata {

StepOrder one_forward_one_backward_order(const StepShape& shape, int stage) {
  const int num_ahead = std::min(shape.micro_batches, shape.num_stages() - stage - 1);
  OrderWriter order(shape, stage);
  for (int m = 0; m < num_ahead; ++m) order.forward(m);
  for (int m = num_ahead; m < shape.micro_batches; ++m) {
    order.forward(m);
    order.backward(m - num_ahead);
  }
  for (int m = shape.micro_batches - num_ahead; m < shape.micro_batches; ++m) order.backward(m);
  order.update();
  return std::move(order).take();
}

}  // namespace strata
