#include "partition/repeated_blocks.hpp"

#include <numeric>
#include <utility>

#include "base/error.hpp"

namespace strata {
namespace {

/// Numbers of what is used, in the old order; -1 of what is not.
std::vector<int> renumbered(const std::vector<bool>& used) {
  std::vector<int> number(used.size(), -1);
  int next = 0;
  for (std::size_t i = 0; i < used.size(); ++i) {
    if (used[i]) number[i] = next++;
  }
  return number;
}

template <typename T>
std::vector<T> those_used(const std::vector<T>& all, const std::vector<bool>& used) {
  std::vector<T> result;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (used[i]) result.push_back(all[i]);
  }
  return result;
}

}  // namespace

std::vector<BlockRun> runs_of_equal_blocks(const ModelGraph& graph,
                                           const std::function<bool(int op, int other)>& are_alike) {
  const auto equal = [&](const Block& a, const Block& b) {
    if (a.shape_class != b.shape_class || a.num_operators != b.num_operators) return false;
    if (a.first_operator + a.num_operators != b.first_operator) return false;  // something stands between them
    for (int i = 0; i < a.num_operators; ++i) {
      if (!are_alike(a.first_operator + i, b.first_operator + i)) return false;
    }
    return true;
  };
  std::vector<BlockRun> runs;
  for (std::size_t b = 0; b < graph.blocks.size(); ++b) {
    if (b > 0 && equal(graph.blocks[b - 1], graph.blocks[b])) {
      ++runs.back().count;
    } else {
      runs.push_back({static_cast<int>(b), 1});
    }
  }
  return runs;
}

ModelGraph with_fewer_blocks(const ModelGraph& graph, std::span<const BlockRun> runs, std::span<const int> kept) {
  std::vector<int> stands_for(graph.tensors.size());  // by tensor: the one that is read in its stead
  std::iota(stands_for.begin(), stands_for.end(), 0);
  std::vector<bool> stays(graph.blocks.size(), true);
  for (std::size_t r = 0; r < runs.size(); ++r) {
    STRATA_INVARIANT(kept[r] >= 1 && kept[r] <= runs[r].count, "a run of blocks keeps one or more of its own");
    const Block& last = graph.blocks[static_cast<std::size_t>(runs[r].first + kept[r] - 1)];
    for (int b = runs[r].first + kept[r]; b < runs[r].first + runs[r].count; ++b) {
      stays[static_cast<std::size_t>(b)] = false;
      const Block& block = graph.blocks[static_cast<std::size_t>(b)];
      for (int i = 0; i < block.num_operators; ++i) {
        const Operator& op = graph.operators[static_cast<std::size_t>(block.first_operator + i)];
        const Operator& instead = graph.operators[static_cast<std::size_t>(last.first_operator + i)];
        for (std::size_t j = 0; j < op.outputs.size(); ++j) {
          stands_for[static_cast<std::size_t>(op.outputs[j])] = instead.outputs[j];
        }
      }
    }
  }

  ModelGraph fewer{.name = graph.name,
                   .tensors = {},
                   .parameters = {},
                   .operators = {},
                   .blocks = {},
                   .positions_per_sample = graph.positions_per_sample};
  std::vector<bool> tensors(graph.tensors.size(), false), parameters(graph.parameters.size(), false);
  const std::vector<int> block_of = renumbered(stays);
  for (const Operator& op : graph.operators) {
    if (op.block >= 0 && !stays[static_cast<std::size_t>(op.block)]) continue;
    Operator& copy = fewer.operators.emplace_back(op);
    for (int& t : copy.inputs) t = stands_for[static_cast<std::size_t>(t)];
    for (const auto* ids : {&copy.inputs, &copy.outputs}) {
      for (const int t : *ids) tensors[static_cast<std::size_t>(t)] = true;
    }
    for (const int p : copy.parameters) parameters[static_cast<std::size_t>(p)] = true;
    if (op.block < 0) continue;
    copy.block = block_of[static_cast<std::size_t>(op.block)];
    if (copy.block == static_cast<int>(fewer.blocks.size())) {
      Block block = graph.blocks[static_cast<std::size_t>(op.block)];
      block.first_operator = static_cast<int>(fewer.operators.size()) - 1;
      fewer.blocks.push_back(std::move(block));
    }
  }
  const std::vector<int> tensor_of = renumbered(tensors), parameter_of = renumbered(parameters);
  for (Operator& op : fewer.operators) {
    for (auto* ids : {&op.inputs, &op.outputs}) {
      for (int& t : *ids) t = tensor_of[static_cast<std::size_t>(t)];
    }
    for (int& p : op.parameters) p = parameter_of[static_cast<std::size_t>(p)];
  }
  fewer.tensors = those_used(graph.tensors, tensors);
  fewer.parameters = those_used(graph.parameters, parameters);
  return fewer;
}

}  // namespace strata
