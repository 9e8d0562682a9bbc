#include "lower/gathering.hpp"

#include <optional>

#include "ir/backward_reads.hpp"
#include "ir/operator_splitting.hpp"
#include "ir/recomputation.hpp"

namespace strata {

Gathering::Gathering(const Plan& plan, const ModelGraph& graph, const Stage& stage,
                     std::span<const OperatorDecision> decisions, const Activations& activations,
                     ParameterStates& parameters)
    : plan_(plan),
      graph_(graph),
      stage_(stage),
      decisions_(decisions),
      activations_(activations),
      parameters_(parameters),
      ahead_in_forward_(plan.overlap.gather == "next_layer"),
      ahead_in_backward_(plan.overlap.gather_backward == "next_module") {
  for (int o = stage.first_operator; o < stage.end(); ++o) {
    if (units_.empty() || at(o).block != at(o - 1).block) units_.push_back({o, o});
    units_.back().end = o + 1;
    unit_of_.push_back(units_.size() - 1);
  }
  keep_what_is_read_again();
}

void Gathering::keep_what_is_read_again() {
  const auto keep = [&](std::span<const int> parameters) {
    for (const int p : parameters) parameters_.keep_for_backward(p);
  };
  for (int o = stage_.first_operator; o < stage_.end(); ++o) {
    keep(read_by_backward(o));
    const bool begins_block = recomputes(o) && graph_.blocks[static_cast<std::size_t>(at(o).block)].first_operator == o;
    if (!begins_block) continue;
    for (const int again : operators_to_recompute(graph_, graph_.blocks[static_cast<std::size_t>(at(o).block)])) {
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

void Gathering::gather_unit(const Unit& unit, int micro_batch) {
  for (int o = unit.first; o < unit.end; ++o) {
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

bool Gathering::recomputes(int o) const {
  return at(o).block >= 0 && decisions_[static_cast<std::size_t>(o)].recompute == Recompute::block;
}

std::vector<int> Gathering::read_by_backward(int o) const {
  return weights_read_by_backward(at(o), activations_.needs_gradient(at(o).inputs.front()));
}

void Gathering::before_forward(int o, int micro_batch) {
  const std::size_t unit = unit_of_[static_cast<std::size_t>(o - stage_.first_operator)];
  if (ahead_in_forward_ && o == units_[unit].first) {
    gather_unit(units_[unit], micro_batch);
    if (unit + 1 < units_.size()) gather_unit(units_[unit + 1], micro_batch);
  }
  gather(at(o).parameters, Phase::forward, micro_batch);
  if (ahead_in_forward_) gather_next_slice(o, Phase::forward, micro_batch);
  arrive(at(o).parameters, Phase::forward, micro_batch);
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

void Gathering::before_backward_of_block(const Block& next, int micro_batch) {
  if (!ahead_in_backward_) return;
  for (const int o : operators_to_recompute(graph_, next, [&](int t) { return activations_.has(t); })) {
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
  for (int next = o - 1; next >= stage_.first_operator; --next) {
    if (recomputes(next) && at(next).block != at(o).block) return;  // before_backward_of_block() does it
    const std::vector<int> ahead = read_by_backward(next);
    if (ahead.empty()) continue;
    gather(ahead, Phase::backward, micro_batch);
    return;
  }
}

void Gathering::after_backward(int o) { release(o); }

}  // namespace strata
