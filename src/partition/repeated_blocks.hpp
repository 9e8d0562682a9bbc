#pragma once

/// @file
/// Which neighbouring blocks of a model are alike, and the same model with fewer of them: what a Program of few blocks
/// needs tells what one of many needs.

#include <functional>
#include <span>
#include <vector>

#include "ir/model/model_graph.hpp"

namespace strata {

/// Blocks [first, first + count) of a graph, one behind the other, all alike.
struct BlockRun {
  int first = 0;
  int count = 0;
  bool operator==(const BlockRun&) const = default;
};

/// All blocks of @p graph. Blocks are alike where their shape classes are, and where @p are_alike says so of their
/// operators one by one.
/// @param are_alike operator ids of the graph.
std::vector<BlockRun> runs_of_equal_blocks(const ModelGraph& graph,
                                           const std::function<bool(int op, int other)>& are_alike);

/// @p graph with the first blocks of each run alone. What read a block that is left out reads the last one of its run
/// that stays. Blocks, operators, tensors and parameters that stay keep their names and their order; nothing is left
/// that nobody uses.
/// @param kept by run how many stay, at least one.
ModelGraph with_fewer_blocks(const ModelGraph& graph, std::span<const BlockRun> runs, std::span<const int> kept);

}  // namespace strata
