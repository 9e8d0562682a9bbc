/// @file
/// What a rank computes in a step, as text.

#include "fuzz/fuzz_target.hpp"
#include "ir/order/step_order.hpp"

namespace strata::fuzz::order_text {
namespace {

/// A walk over all repetitions takes as long as steps reach, counts as long as a step has micro-batches.
bool is_small(const StepOrder& order) {
  for (const OrderItem& item : order.items) {
    if (item.step < -8 || item.step > 8 || item.version > 8) return false;
  }
  const StepShape& shape = order.shape;
  return order.steps_per_body <= 8 && shape.micro_batches <= 16 && shape.sub_batches <= 4 &&
         shape.segments.size() <= 64 && order.items.size() <= 4096;
}

}  // namespace

STRATA_FUZZ_TARGET(order) {
  const auto order = unless_refused("order, line ", [&] { return parse_step_order(text_of(bytes)); });
  if (!order) return;
  const std::string text = to_text(*order);
  require(parse_step_order(text) == *order, "an order and its text differ:\n" + text);
  if (!is_small(*order)) return;
  try {
    verify({&*order, 1U});
  } catch (const InternalError& error) {
    require(std::string_view(error.what()).size() > 10, "a refusal without a reason");
  }
}

}  // namespace strata::fuzz::order_text
