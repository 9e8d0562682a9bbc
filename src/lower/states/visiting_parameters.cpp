#include "lower/states/visiting_parameters.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "base/error.hpp"
#include "ir/model/backward_reads.hpp"

namespace strata {
namespace {

/// Parameters of @p stage that its backward reads, with what it computes again.
std::vector<int> read_behind_forward(const ModelGraph& graph, const StepShape& shape,
                                     std::span<const SegmentRecomputation> recomputation, int stage) {
  const std::vector<bool> needs_gradient = tensors_with_gradient(graph);
  std::set<int> read;
  const SegmentRange segments = segments_of_stage(shape, stage);
  for (int s = segments.first; s < segments.end; ++s) {
    const Segment& segment = shape.segments[static_cast<std::size_t>(s)];
    for (int o = segment.first_operator; o < segment.end(); ++o) {
      const Operator& op = graph.operators[static_cast<std::size_t>(o)];
      const bool has_gradient = needs_gradient[static_cast<std::size_t>(op.inputs.front())];
      for (const int p : weights_read_by_backward(op, has_gradient)) read.insert(p);
    }
    for (const int o : recomputation[static_cast<std::size_t>(s)].runs_again) {
      for (const int p : graph.operators[static_cast<std::size_t>(o)].parameters) read.insert(p);
    }
  }
  return {read.begin(), read.end()};
}

}  // namespace

VisitingParameters::VisitingParameters(const Plan& plan, const ModelGraph& graph, const StepOrder& order,
                                       std::span<const SegmentRecomputation> recomputation, const ParameterWalk& walk,
                                       ProgramBuilder& builder)
    : graph_(graph),
      walk_(walk),
      elements_per_boundary_(arena_alignment_bytes / size_of(plan.dtypes.compute)),
      slots_(slots_of_visits(walk, order.steps_per_body)) {
  for (const ParameterWalk::Visit& visit : walk.visits) {
    carried_.push_back(visit.backward ? read_behind_forward(graph, order.shape, recomputation, visit.stage)
                                      : parameters_of_stage(order.shape, visit.stage));
  }
  std::vector<std::int64_t> sizes;  // by slot
  for (const std::vector<int>& of_step : slots_) {
    for (std::size_t v = 0; v < of_step.size(); ++v) {
      if (of_step[v] < 0) continue;
      const auto slot = static_cast<std::size_t>(of_step[v]);
      sizes.resize(std::max(sizes.size(), slot + 1), 0);
      if (carried_[v].empty()) continue;
      const Operand last = weight_at(0, static_cast<int>(v), carried_[v].back());
      sizes[slot] = std::max(sizes[slot], last.begin + last.num_elements);
    }
  }
  std::vector<int> buffers;
  for (std::size_t slot = 0; slot < sizes.size(); ++slot) {
    buffers.push_back(builder.add_buffer({.name = fmt::format("visiting[{}]", slot),
                                          .num_elements = sizes[slot],
                                          .dtype = plan.dtypes.compute,
                                          .category = Category::communication,
                                          .persistent = true}));
  }
  for (std::vector<int>& of_step : slots_) {
    for (int& slot : of_step) slot = slot < 0 ? -1 : buffers[static_cast<std::size_t>(slot)];
  }
}

Operand VisitingParameters::weight_at(int buffer, int visit, int parameter) const {
  std::int64_t begin = 0;
  for (const int p : carried(visit)) {
    const std::int64_t num_elements = graph_.parameters[static_cast<std::size_t>(p)].num_elements();
    if (p == parameter) return {buffer, begin, num_elements};
    begin += (num_elements + elements_per_boundary_ - 1) / elements_per_boundary_ * elements_per_boundary_;
  }
  throw InternalError(
      fmt::format("{} does not come for visit {}", graph_.parameters[static_cast<std::size_t>(parameter)].name, visit));
}

Operand VisitingParameters::weight(int step, int visit, int parameter) const {
  const int buffer = slots_[static_cast<std::size_t>(step)][static_cast<std::size_t>(visit)];
  STRATA_INVARIANT(buffer >= 0, fmt::format("visit {} is the owner's", visit));
  return weight_at(buffer, visit, parameter);
}

}  // namespace strata
