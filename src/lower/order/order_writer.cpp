#include "lower/order/order_writer.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "lower/order/sub_batches.hpp"

namespace strata {

OrderWriter::OrderWriter(const StepShape& shape, std::vector<int> stages)
    : order_{.shape = shape}, stages_(std::move(stages)) {}

void OrderWriter::forward(int stage, int micro_batch) {
  std::ranges::copy(forward_of_sub_batches(order_.shape, segments_of_stage(order_.shape, stage), micro_batch),
                    std::back_inserter(order_.items));
}

void OrderWriter::backward(int stage, int micro_batch) {
  std::ranges::copy(backward_of_sub_batches(order_.shape, segments_of_stage(order_.shape, stage), micro_batch),
                    std::back_inserter(order_.items));
}

void OrderWriter::update() {
  if (order_.shape.updates_in_backward) return update_in_backward();
  std::set<int> parameters;
  for (const int stage : stages_) {
    const std::vector<int> of_stage = parameters_of_stage(order_.shape, stage);
    parameters.insert(of_stage.begin(), of_stage.end());
  }
  if (parameters.empty()) return;  // a stage of pooling alone
  order_.items.push_back({.pass = Pass::update, .parameters = {parameters.begin(), parameters.end()}});
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
    if (std::ranges::find(stages_, other.stage) != stages_.end()) continue;
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
