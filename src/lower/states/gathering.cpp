#include "lower/states/gathering.hpp"

#include <algorithm>
#include <optional>

#include "ir/model/backward_reads.hpp"
#include "partition/operator_splitting.hpp"
#include "partition/recomputation.hpp"

namespace strata {

Gathering::Gathering(const Plan& plan, const ModelGraph& graph, const StepShape& shape, int stage,
                     const TensorUses& uses, ParameterStates& parameters)
    : plan_(plan),
      graph_(graph),
      shape_(shape),
      stage_(stage),
      uses_(uses),
      parameters_(parameters),
      ahead_in_forward_(plan.overlap.gather == "next_layer"),
      ahead_in_backward_(plan.overlap.gather_backward == "next_module") {
  keep_what_is_read_again();
}

void Gathering::keep_what_is_read_again() {
  const auto keep = [&](std::span<const int> parameters) {
    for (const int p : parameters) parameters_.keep_for_backward(p);
  };
  for (const Segment& segment : shape_.segments) {
    if (segment.stage != stage_) continue;
    for (int o = segment.first_operator; o < segment.end(); ++o) keep(read_by_backward(o));
    if (!segment.recomputed) continue;
    const int block = at(segment.first_operator).block;
    for (const int again : operators_to_recompute(graph_, graph_.blocks[static_cast<std::size_t>(block)])) {
      keep(at(again).parameters);
    }
  }
}

void Gathering::gather(std::span<const int> parameters, Phase phase, int micro_batch) {
  for (const int p : parameters) parameters_.gather(p, phase, micro_batch);
}

void Gathering::arrive(std::span<const int> parameters, Phase phase, int micro_batch) {
  for (const int p : parameters) parameters_.arrive(p, phase, micro_batch);
}

void Gathering::gather_segment(const Segment& segment, int micro_batch) {
  for (int o = segment.first_operator; o < segment.end(); ++o) {
    if (!follows_slice(o)) gather(at(o).parameters, Phase::forward, micro_batch);
  }
}

bool Gathering::follows_slice(int o) const {
  const std::optional<ColumnBlock> columns = columns_of(at(o));
  return columns && !is_first(*columns);
}

/// Of a split operator the slice behind @p o, under the kernel of this one.
void Gathering::gather_next_slice(int o, Phase phase, int micro_batch) {
  const std::optional<ColumnBlock> columns = columns_of(at(o));
  if (columns && !is_last(*columns)) gather(at(o + 1).parameters, phase, micro_batch);
}

void Gathering::release(int o) {
  for (const int p : at(o).parameters) parameters_.release(p);
}

std::vector<int> Gathering::read_by_backward(int o) const {
  return weights_read_by_backward(at(o), uses_.needs_gradient[static_cast<std::size_t>(at(o).inputs.front())]);
}

void Gathering::before_forward(int o, const OrderItem& item) {
  const auto s = static_cast<std::size_t>(item.segment);
  if (ahead_in_forward_ && o == shape_.segments[s].first_operator) {
    gather_segment(shape_.segments[s], item.micro_batch);
    if (s + 1 < shape_.segments.size() && shape_.segments[s + 1].stage == stage_) {
      gather_segment(shape_.segments[s + 1], item.micro_batch);
    }
  }
  gather(at(o).parameters, Phase::forward, item.micro_batch);
  if (ahead_in_forward_) gather_next_slice(o, Phase::forward, item.micro_batch);
  arrive(at(o).parameters, Phase::forward, item.micro_batch);
}

void Gathering::after_forward(int o) { release(o); }

void Gathering::before_recompute(int o, int micro_batch) {
  gather(at(o).parameters, Phase::recompute, micro_batch);
  if (ahead_in_backward_) gather_next_slice(o, Phase::recompute, micro_batch);
  arrive(at(o).parameters, Phase::recompute, micro_batch);
}

void Gathering::after_recompute(int o) {
  if (plan_.gathered_after_recompute == "regather") release(o);
}

void Gathering::before_backward_of_block(std::span<const int> next, int micro_batch) {
  if (!ahead_in_backward_) return;
  for (const int o : next) {
    if (!follows_slice(o)) gather(at(o).parameters, Phase::recompute, micro_batch);
  }
}

void Gathering::before_backward(int o, int micro_batch) {
  const std::vector<int> now = read_by_backward(o);
  gather(now, Phase::backward, micro_batch);
  if (ahead_in_backward_ && !now.empty()) gather_before(o, micro_batch);
  arrive(now, Phase::backward, micro_batch);
}

/// What backward reads next, behind operator @p o.
void Gathering::gather_before(int o, int micro_batch) {
  auto segment = std::ranges::find_if(shape_.segments, [&](const Segment& s) { return o < s.end(); });
  for (int next = o - 1; next >= 0; --next) {
    if (next < segment->first_operator) {
      --segment;
      if (segment->stage != stage_ || segment->recomputed) return;  // before_backward_of_block() does it
    }
    const std::vector<int> ahead = read_by_backward(next);
    if (ahead.empty()) continue;
    gather(ahead, Phase::backward, micro_batch);
    return;
  }
}

void Gathering::after_backward(int o) { release(o); }

}  // namespace strata
