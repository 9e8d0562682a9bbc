/// @file
/// One forward, one backward without a flush: micro-batches are counted over all training steps, and a stage is always
/// S - s - 1 forwards ahead of its backwards, from one step into the next. With M >= S micro-batches a step, a stage
/// has all gradients of training step t - 2 when it begins its first forward of step t. So every pass of step t reads
/// θ_{t-1}, what the update by those gradients has made, which is one step old; a stage holds two versions. An update
/// follows the last backward of its step: θ_{t+1} = θ_t - γ ∇f_t(θ_{t-1}). Nobody stands empty but in the first and the
/// last step.
///
/// Source: Narayanan et al., Memory-Efficient Pipeline-Parallel DNN Training (PipeDream-2BW), ICML 2021, sec. 3.1.

#include <utility>

#include "base/error.hpp"
#include "lower/order/order_writer.hpp"
#include "lower/order/schedules.hpp"

namespace strata {

StepOrder two_buffered_weights_order(const StepShape& shape, int stage) {
  const int num = shape.micro_batches, num_ahead = shape.num_stages() - stage - 1;
  STRATA_INVARIANT(num >= shape.num_stages(), "a step has at least as many micro-batches as stages");
  // Backwards are num_ahead passes late: the last ones of a step stand in the next repetition.
  OrderWriter writer(shape, stage);
  for (int m = 0; m < num; ++m) {
    const int completed = (m + num - num_ahead) % num;
    writer.forward(m);
    writer.backward(completed);
    if (completed == num - 1) writer.update();
  }
  StepOrder order = std::move(writer).take();
  for (OrderItem& item : order.items) {
    const bool is_late = item.pass == Pass::update ? num_ahead > 0 : item.micro_batch >= num - num_ahead;
    if (item.pass != Pass::forward && is_late) item.step = -1;
    if (item.pass != Pass::update) item.version = 1;
  }
  return unrolled(order, 2);  // the two versions change places every step
}

}  // namespace strata
