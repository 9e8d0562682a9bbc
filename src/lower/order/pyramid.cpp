#include "lower/order/pyramid.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "lower/order/cyclic.hpp"
#include "lower/order/sub_batches.hpp"

namespace strata {

StepOrder pyramid_order(const StepShape& shape, const FreshTable& fresh, const StepPart& part, int steps) {
  refuse_what_is_not_in_time(fresh, freshest(shape.micro_batches, shape.num_stages()));
  const int n = shape.micro_batches, stage = part.first_stage;
  STRATA_INVARIANT(part.end_stage == stage + 1 && steps * n % part.num_replicas == 0,
                   fmt::format("{} steps of {} micro-batches on {} replicas", steps, n, part.num_replicas));
  const SegmentRange segments = segments_of_stage(shape, stage);
  const std::vector<int> parameters = parameters_of_stage(shape, stage);
  StepOrder order{.shape = shape, .steps_per_body = steps};
  const auto append = [&](std::vector<OrderItem> pass, int step, bool is_fresh) {
    for (OrderItem& item : pass) {
      item.step = step;
      item.version = is_fresh ? 0 : 1;
    }
    std::ranges::move(pass, std::back_inserter(order.items));
  };
  for (int c = part.replica; c < steps * n; c += part.num_replicas) {  // micro-batches, counted over all steps
    const int step = c / n, micro_batch = c % n;
    const bool is_fresh = fresh[static_cast<std::size_t>(micro_batch)][static_cast<std::size_t>(stage)] == '1';
    append(forward_of_sub_batches(shape, segments, micro_batch), step, is_fresh);
    append(backward_of_sub_batches(shape, segments, micro_batch), step, is_fresh);
    // The first one on this replica from the last micro-batch of its step, or of the step before, on.
    const int behind_last = micro_batch == n - 1 ? 0 : micro_batch + 1;
    if (behind_last >= part.num_replicas || parameters.empty()) continue;
    order.items.push_back({.pass = Pass::update, .step = behind_last == 0 ? step : step - 1, .parameters = parameters});
  }
  return order;
}

}  // namespace strata
