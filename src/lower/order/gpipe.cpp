/// @file
/// Fill, then drain: every forward, then every backward, the last micro-batch first, for what was stored last is needed
/// first.
///
/// Source: Huang et al., GPipe, NeurIPS 2019, fig. 2.

#include "lower/order/order_writer.hpp"
#include "lower/order/schedules.hpp"

namespace strata {

StepOrder gpipe_order(const StepShape& shape, int stage) {
  OrderWriter order(shape, stage);
  for (int m = 0; m < shape.micro_batches; ++m) order.forward(m);
  for (int m = shape.micro_batches; m-- > 0;) order.backward(m);
  order.update();
  return std::move(order).take();
}

}  // namespace strata
