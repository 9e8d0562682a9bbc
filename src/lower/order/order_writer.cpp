#include "lower/order/order_writer.hpp"

#include "base/error.hpp"

namespace strata {

OrderWriter::OrderWriter(const StepShape& shape, int stage) : order_{.shape = shape}, stage_(stage) {
  const auto is_before = [&](int s) { return shape.segments[static_cast<std::size_t>(s)].stage < stage; };
  const auto is_of_stage = [&](int s) { return shape.segments[static_cast<std::size_t>(s)].stage == stage; };
  const int count = static_cast<int>(shape.segments.size());
  while (first_ < count && is_before(first_)) ++first_;
  for (end_ = first_; end_ < count && is_of_stage(end_);) ++end_;
  STRATA_INVARIANT(first_ < end_, "no segment of stage " + std::to_string(stage));
}

void OrderWriter::forward(int micro_batch) {
  for (int s = first_; s < end_; ++s) {
    order_.items.push_back({.pass = Pass::forward, .segment = s, .micro_batch = micro_batch});
  }
}

void OrderWriter::backward(int micro_batch) {
  for (int s = end_; s-- > first_;) {
    if (order_.shape.segments[static_cast<std::size_t>(s)].recomputed) {
      order_.items.push_back({.pass = Pass::recompute, .segment = s, .micro_batch = micro_batch});
    }
    order_.items.push_back({.pass = Pass::backward, .segment = s, .micro_batch = micro_batch});
  }
}

void OrderWriter::update() {
  std::vector<int> parameters = parameters_of_stage(order_.shape, stage_);
  if (parameters.empty()) return;  // a stage of pooling alone
  order_.items.push_back({.pass = Pass::update, .parameters = std::move(parameters)});
}

}  // namespace strata
