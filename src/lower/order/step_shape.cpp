#include "lower/order/step_shape.hpp"

#include <algorithm>

namespace strata {
namespace {

/// Numbers of regions by operator; -1: it is not recomputed.
std::vector<int> region_of_operators(const ModelGraph& graph, std::span<const RecomputedRegion> regions) {
  std::vector<int> region(graph.operators.size(), -1);
  for (std::size_t r = 0; r < regions.size(); ++r) {
    std::fill_n(region.begin() + regions[r].first_operator, regions[r].num_operators, static_cast<int>(r));
  }
  return region;
}

bool is_true(const std::vector<bool>& by_operator, int o) {
  return !by_operator.empty() && by_operator[static_cast<std::size_t>(o)];
}

}  // namespace

StepShape step_shape(const Plan& plan, const ModelGraph& graph, std::span<const RecomputedRegion> regions,
                     std::span<const Stage> stages, const LayoutCollectives& collectives) {
  StepShape shape{.micro_batches = plan.schedule.micro_batches,
                  .sub_batches = plan.schedule.sub_batches,
                  .cross_pass = plan.schedule.cross_pass,
                  .updates_in_backward = plan.overlap.update == "backward"};
  const std::vector<int> region_of = region_of_operators(graph, regions);
  const auto block = [&](int o) { return graph.operators[static_cast<std::size_t>(o)].block; };
  const auto region = [&](int o) { return region_of[static_cast<std::size_t>(o)]; };
  /// Forward may forget what nobody needs again.
  const auto runs_again = [&](int o) {
    return region(o) >= 0 && !regions[static_cast<std::size_t>(region(o))].runs_again.empty();
  };
  const auto is_cut_before = [&](int o) {
    const bool at_collective =
        shape.sub_batches > 1 && (is_true(collectives.forward, o - 1) || is_true(collectives.backward, o));
    return block(o) != block(o - 1) || region(o) != region(o - 1) || at_collective;
  };
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const int first = stages[s].first_operator;
    for (int o = first; o < stages[s].end(); ++o) {
      if (o == first || is_cut_before(o)) {
        // Where passes are not crossed a block's regions are recomputed together: its backward waits for all of them.
        const bool with_previous = o > first && runs_again(o) && runs_again(o - 1) && block(o) == block(o - 1) &&
                                   (!shape.cross_pass || region(o) == region(o - 1));
        shape.segments.push_back({.stage = static_cast<int>(s),
                                  .first_operator = o,
                                  .recomputed = runs_again(o),
                                  .recomputed_with_previous = with_previous});
      }
      ++shape.segments.back().num_operators;
    }
  }
  for (Segment& segment : shape.segments) {
    const int last = segment.end() - 1;
    for (int o = segment.first_operator; o <= last; ++o) {
      for (const int p : graph.operators[static_cast<std::size_t>(o)].parameters) segment.parameters.push_back(p);
    }
    std::ranges::sort(segment.parameters);
    const auto [again, end] = std::ranges::unique(segment.parameters);
    segment.parameters.erase(again, end);
    segment.communicates_forward = is_true(collectives.forward, last);
    segment.communicates_recompute =
        segment.communicates_forward && segment.recomputed &&
        std::ranges::binary_search(regions[static_cast<std::size_t>(region(last))].runs_again, last);
    segment.communicates_backward = is_true(collectives.backward, segment.first_operator);
  }
  return shape;
}

std::vector<RecomputedRegion> recomputed_regions(const ModelGraph& graph, std::span<const OperatorDecision> decisions,
                                                 const LayoutCollectives& collectives, std::span<const Stage> stages) {
  std::vector<Recompute> kinds;
  for (const OperatorDecision& d : decisions) kinds.push_back(d.recompute);
  return recomputed_regions(graph, kinds, collectives.forward, stages);
}

std::vector<SegmentRecomputation> recomputation_by_segment(const StepShape& shape,
                                                           std::span<const RecomputedRegion> regions) {
  std::vector<SegmentRecomputation> result(shape.segments.size());
  std::size_t s = 0;
  for (const RecomputedRegion& region : regions) {
    while (shape.segments[s].first_operator < region.first_operator) ++s;
    for (; s < shape.segments.size() && shape.segments[s].end() <= region.end(); ++s) {
      const std::span<const int> again =
          region.runs_again_in(shape.segments[s].first_operator, shape.segments[s].end());
      result[s].runs_again.assign(again.begin(), again.end());
      if (shape.segments[s].end() == region.end()) result[s].forgotten = region.forgotten;
    }
  }
  return result;
}

}  // namespace strata
