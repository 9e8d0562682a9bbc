#pragma once

/// @file
/// A schedule that no file of strata knows: what it takes to have a new one.

#include <algorithm>

#include "lower/order/order_writer.hpp"

namespace strata {

/// Two forwards, then a backward of the oldest micro-batch, as long as there are forwards; a stage is one micro-batch
/// ahead of the stage behind it.
inline StepOrder two_forwards_one_backward(const StepShape& shape, int stage) {
  OrderWriter order(shape, stage);
  int forwards = 0;
  for (int backwards = 0; backwards < shape.micro_batches; ++backwards) {
    const int ahead = std::min(shape.micro_batches, shape.num_stages() - stage + 2 * backwards + 1);
    while (forwards < ahead) order.forward(forwards++);
    order.backward(backwards);
  }
  order.update();
  return std::move(order).take();
}

}  // namespace strata
