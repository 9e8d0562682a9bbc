#include "ir/order/step_order.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/error.hpp"

namespace strata {

SegmentRange segments_of_stage(const StepShape& shape, int stage) {
  const auto [first, end] = std::ranges::equal_range(shape.segments, stage, {}, &Segment::stage);
  STRATA_INVARIANT(first != end, fmt::format("no segment of stage {}", stage));
  return {static_cast<int>(first - shape.segments.begin()), static_cast<int>(end - shape.segments.begin())};
}

std::vector<Run> runs_of(const StepOrder& order) {
  std::vector<Run> runs;
  for (std::size_t i = 0; i < order.items.size(); ++i) {
    const OrderItem& item = order.items[i];
    if (item.pass == Pass::update) continue;
    const bool backward = item.pass != Pass::forward;
    if (runs.empty() || runs.back().backward != backward || runs.back().micro_batch != item.micro_batch) {
      runs.push_back({static_cast<int>(i), backward, item.micro_batch});
    }
  }
  return runs;
}

StepOrder unrolled(const StepOrder& order, int num) {
  StepOrder result{.shape = order.shape, .steps_per_body = order.steps_per_body * num};
  for (int repetition = 0; repetition < num; ++repetition) {
    for (const OrderItem& item : order.items) {
      result.items.push_back(item);
      result.items.back().step += repetition * order.steps_per_body;
    }
  }
  return result;
}

std::vector<int> items_of_step(const StepOrder& order, int step) {
  std::vector<int> items;
  const auto step_of = [&](int i) { return order.items[static_cast<std::size_t>(i)].step; };
  for (int i = 0; i < static_cast<int>(order.items.size()); ++i) {
    if ((step_of(i) - step) % order.steps_per_body == 0) items.push_back(i);
  }
  std::ranges::stable_sort(items, std::ranges::greater{}, step_of);
  return items;
}

int behind_last_pass(const StepOrder& order) {
  std::size_t end = order.items.size();
  while (end > 0 && order.items[end - 1].pass == Pass::update) --end;
  return static_cast<int>(end);
}

std::vector<int> parameters_of_stage(const StepShape& shape, int stage) {
  std::set<int> all;
  for (const Segment& segment : shape.segments) {
    if (segment.stage == stage) all.insert(segment.parameters.begin(), segment.parameters.end());
  }
  return {all.begin(), all.end()};
}

std::string_view to_string(Pass pass) {
  switch (pass) {
    case Pass::forward: return "forward";
    case Pass::recompute: return "recompute";
    case Pass::backward: return "backward";
    case Pass::update: return "update";
  }
  return "?";
}

std::string describe(const OrderItem& item) {
  std::string text =
      item.pass == Pass::update
          ? fmt::format("update of parameters {}", fmt::join(item.parameters, ", "))
          : fmt::format("{} of segment {}, micro-batch {}", to_string(item.pass), item.segment, item.micro_batch);
  if (item.sub_batch != 0) text += fmt::format(", sub-batch {}", item.sub_batch);
  if (item.version != 0) text += fmt::format(", version {}", item.version);
  if (item.barrier) text += ", behind a barrier";
  if (item.step != 0) text += fmt::format(", step {}", item.step);
  return text;
}

}  // namespace strata
