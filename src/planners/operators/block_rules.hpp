#pragma once

/// @file
/// Rules said of single blocks, as a plan says them: neighbouring blocks that agree share a rule.

#include <vector>

#include "ir/plan/plan.hpp"

namespace strata {

struct RuleOfBlock {
  int block = -1;     ///< -1: outside of every block
  OperatorRule rule;  ///< matches names within the block
};

/// @param said blocks rise.
std::vector<OperatorRule> joined_over_blocks(std::vector<RuleOfBlock> said);

}  // namespace strata
