#include "partition/recomputation.hpp"

#include <algorithm>

namespace strata {
namespace {

/// By tensor: the block that makes it where only that block reads it, otherwise -1.
std::vector<int> inside_of_blocks(const ModelGraph& graph) {
  std::vector<int> inside(graph.tensors.size(), -1);
  for (const Operator& op : graph.operators) {
    for (const int t : op.outputs) inside[static_cast<std::size_t>(t)] = op.block;
  }
  for (const Operator& op : graph.operators) {
    for (const int t : op.inputs) {
      int& block = inside[static_cast<std::size_t>(t)];
      if (block != op.block) block = -1;
    }
  }
  // The last value of the model is read by nobody here, yet somebody wants it.
  inside[static_cast<std::size_t>(graph.operators.back().outputs.front())] = -1;
  return inside;
}

std::vector<int> operators_that_run_again(const ModelGraph& graph, int block, const std::vector<int>& inside) {
  const int first_operator = graph.blocks[static_cast<std::size_t>(block)].first_operator;
  const int end = first_operator + graph.blocks[static_cast<std::size_t>(block)].num_operators;
  std::vector<int> needed;
  const auto need = [&](int tensor) {
    if (inside[static_cast<std::size_t>(tensor)] == block) needed.push_back(tensor);
  };
  for (int o = first_operator; o < end; ++o) {
    for (const int t : saved_for_backward(graph.operators[static_cast<std::size_t>(o)])) need(t);
  }
  std::vector<int> again;
  for (int o = end; o-- > first_operator;) {
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

std::vector<RecomputedBlock> recomputed_blocks(const ModelGraph& graph) {
  const std::vector<int> inside = inside_of_blocks(graph);
  std::vector<RecomputedBlock> blocks(graph.blocks.size());
  for (std::size_t t = 0; t < inside.size(); ++t) {
    if (inside[t] >= 0) blocks[static_cast<std::size_t>(inside[t])].forgotten.push_back(static_cast<int>(t));
  }
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    blocks[b].runs_again = operators_that_run_again(graph, static_cast<int>(b), inside);
  }
  return blocks;
}

}  // namespace strata
