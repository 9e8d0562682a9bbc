#include "partition/recomputation.hpp"

#include <algorithm>
#include <numeric>

namespace strata {
namespace {

/// By tensor: the region that makes it where only that region reads it, otherwise -1.
std::vector<int> inside_of_regions(const ModelGraph& graph, const std::vector<int>& region_of_operator) {
  std::vector<int> inside(graph.tensors.size(), -1);
  for (std::size_t o = 0; o < graph.operators.size(); ++o) {
    for (const int t : graph.operators[o].outputs) inside[static_cast<std::size_t>(t)] = region_of_operator[o];
  }
  for (std::size_t o = 0; o < graph.operators.size(); ++o) {
    for (const int t : graph.operators[o].inputs) {
      int& region = inside[static_cast<std::size_t>(t)];
      if (region != region_of_operator[o]) region = -1;
    }
  }
  // The last value of the model is read by nobody here, yet somebody wants it.
  inside[static_cast<std::size_t>(graph.operators.back().outputs.front())] = -1;
  return inside;
}

/// Operators of region number @p index that make what its backward reads, and what they read for that.
std::vector<int> operators_that_run_again(const ModelGraph& graph, const RecomputedRegion& region, int index,
                                          const std::vector<int>& inside) {
  std::vector<int> needed;
  const auto need = [&](int tensor) {
    if (inside[static_cast<std::size_t>(tensor)] == index) needed.push_back(tensor);
  };
  for (int o = region.first_operator; o < region.end(); ++o) {
    for (const int t : saved_for_backward(graph.operators[static_cast<std::size_t>(o)])) need(t);
  }
  std::vector<int> again;
  for (int o = region.end(); o-- > region.first_operator;) {
    const Operator& op = graph.operators[static_cast<std::size_t>(o)];
    if (std::ranges::any_of(op.outputs, [&](int t) { return std::ranges::find(needed, t) != needed.end(); })) {
      again.push_back(o);
      for (const int t : op.inputs) need(t);
    }
  }
  std::ranges::reverse(again);
  return again;
}

}  // namespace

std::span<const int> RecomputedRegion::runs_again_in(int first, int end) const {
  return {std::ranges::lower_bound(runs_again, first), std::ranges::lower_bound(runs_again, end)};
}

std::vector<RecomputedRegion> recomputed_regions(const ModelGraph& graph, std::span<const Recompute> kinds,
                                                 const std::vector<bool>& communicates, std::span<const Stage> stages) {
  const auto begins_stage = [&](std::size_t o) {
    return std::ranges::find(stages, static_cast<int>(o), &Stage::first_operator) != stages.end();
  };
  std::vector<RecomputedRegion> regions;
  std::vector<int> region_of_operator(graph.operators.size(), -1);
  for (std::size_t o = 0; o < graph.operators.size(); ++o) {
    const Operator& op = graph.operators[o];
    if (op.block < 0 || kinds[o] == Recompute::none) continue;
    const bool goes_on = o > 0 && region_of_operator[o - 1] >= 0 && graph.operators[o - 1].block == op.block &&
                         kinds[o - 1] == kinds[o] && !begins_stage(o) &&
                         (kinds[o] != Recompute::after_communication || communicates.empty() || !communicates[o - 1]);
    if (!goes_on) regions.push_back({.first_operator = static_cast<int>(o)});
    ++regions.back().num_operators;
    region_of_operator[o] = static_cast<int>(regions.size()) - 1;
  }
  std::vector<int> inside = inside_of_regions(graph, region_of_operator);
  for (std::size_t o = 0; o < graph.operators.size() && !communicates.empty(); ++o) {
    if (!communicates[o] || kinds[o] != Recompute::after_communication) continue;
    for (const int t : graph.operators[o].outputs) inside[static_cast<std::size_t>(t)] = -1;  // statistics too
  }
  for (std::size_t t = 0; t < inside.size(); ++t) {
    if (inside[t] >= 0) regions[static_cast<std::size_t>(inside[t])].forgotten.push_back(static_cast<int>(t));
  }
  for (std::size_t r = 0; r < regions.size(); ++r) {
    RecomputedRegion& region = regions[r];
    if (kinds[static_cast<std::size_t>(region.first_operator)] == Recompute::whole_block) {
      region.runs_again.resize(static_cast<std::size_t>(region.num_operators));
      std::iota(region.runs_again.begin(), region.runs_again.end(), region.first_operator);
    } else {
      region.runs_again = operators_that_run_again(graph, region, static_cast<int>(r), inside);
    }
  }
  return regions;
}

}  // namespace strata
