#pragma once

/// @file
/// Rules said of single blocks, as a plan says them: neighbouring blocks that agree share a rule.

#include <vector>

#include "ir/model/model_graph.hpp"
#include "ir/plan/plan.hpp"

namespace strata {

struct RuleOfBlock {
  int block = -1;     ///< as names say it; -1: outside of every block
  OperatorRule rule;  ///< matches names within the block
};

/// What names of block @p block's operators say, which is its number in the model that @p graph is a part of; -1: -1.
int block_in_names(const ModelGraph& graph, int block);

/// @param said blocks rise.
std::vector<OperatorRule> joined_over_blocks(std::vector<RuleOfBlock> said);

}  // namespace strata
