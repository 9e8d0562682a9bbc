/// @file
/// One stage: each micro-batch's forward, then its backward; all ranks do the same at the same time.

#include "lower/order/order_writer.hpp"
#include "lower/order/schedules.hpp"

namespace strata {

StepOrder simultaneous_order(const StepShape& shape, int stage) {
  OrderWriter order(shape, stage);
  for (int m = 0; m < shape.micro_batches; ++m) {
    order.forward(m);
    order.backward(m);
  }
  order.update();
  return std::move(order).take();
}

}  // namespace strata
