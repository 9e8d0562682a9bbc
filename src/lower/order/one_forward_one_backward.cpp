/// @file
/// Passes in the order of partition/pipeline_passes.hpp, a stage a place.

#include "lower/order/order_writer.hpp"
#include "lower/order/schedules.hpp"
#include "partition/pipeline_passes.hpp"

namespace strata {

StepOrder one_forward_one_backward_order(const StepShape& shape, int stage) {
  OrderWriter order(shape, stage);
  for (const PipelinePass& pass : pipeline_passes(
           {.place = stage, .places = shape.num_stages(), .stages = 1, .micro_batches = shape.micro_batches})) {
    if (pass.is_forward) {
      order.forward(pass.micro_batch);
    } else {
      order.backward(pass.micro_batch);
    }
  }
  order.update();
  return std::move(order).take();
}

}  // namespace strata
