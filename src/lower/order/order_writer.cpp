#include "lower/order/order_writer.hpp"

#include <algorithm>
#include <iterator>
#include <map>

#include "lower/order/sub_batches.hpp"

namespace strata {

OrderWriter::OrderWriter(const StepShape& shape, int stage)
    : order_{.shape = shape}, stage_(stage), segments_(segments_of_stage(shape, stage)) {}

void OrderWriter::forward(int micro_batch) {
  std::ranges::copy(forward_of_sub_batches(order_.shape, segments_, micro_batch), std::back_inserter(order_.items));
}

void OrderWriter::backward(int micro_batch) {
  std::ranges::copy(backward_of_sub_batches(order_.shape, segments_, micro_batch), std::back_inserter(order_.items));
}

void OrderWriter::update() {
  if (order_.shape.updates_in_backward) return update_in_backward();
  std::vector<int> parameters = parameters_of_stage(order_.shape, stage_);
  if (parameters.empty()) return;  // a stage of pooling alone
  order_.items.push_back({.pass = Pass::update, .parameters = std::move(parameters)});
}

void OrderWriter::update_in_backward() {
  std::vector<std::size_t> backwards;  // places of all backward items
  for (std::size_t i = 0; i < order_.items.size(); ++i) {
    if (order_.items[i].pass == Pass::backward) backwards.push_back(i);
  }
  std::map<int, std::size_t> completed_by;  // parameter -> its last backward, by place in `backwards`
  for (std::size_t b = 0; b < backwards.size(); ++b) {
    for (const int p : segment_of(order_.items[backwards[b]]).parameters) completed_by[p] = b;
  }
  for (const Segment& other : order_.shape.segments) {
    if (other.stage == stage_) continue;
    for (const int p : other.parameters) {
      if (const auto tied = completed_by.find(p); tied != completed_by.end()) tied->second = backwards.size();
    }
  }
  std::map<std::size_t, std::vector<int>> behind;  // place of an item -> what is updated behind it
  for (const auto& [p, b] : completed_by) behind[backwards[std::min(b + 1, backwards.size() - 1)]].push_back(p);
  std::vector<OrderItem> items;
  for (std::size_t i = 0; i < order_.items.size(); ++i) {
    items.push_back(std::move(order_.items[i]));
    if (const auto here = behind.find(i); here != behind.end()) {
      items.push_back({.pass = Pass::update, .parameters = std::move(here->second)});
    }
  }
  order_.items = std::move(items);
}

}  // namespace strata
