#pragma once

/// @file
/// OSDP's own search (algorithm 1): for b = 1, 2, 3, … a depth-first search over the choices of each operator, one
/// after the other, that turns back where memory is over the limit or time over the best so far; it ends with the first
/// b for which nothing fits. Operators of one shape are not counted but enumerated.
///
/// Differs: both limits count the least that the operators still to come take. Without that a search that replicates
/// the first operators until memory is full finds no plan at all of a hundred operators.

#include <cstdint>
#include <span>
#include <vector>

#include "planners/search/choice_problem.hpp"

namespace strata {

struct DepthFirstAnswer {
  std::vector<BatchAnswer> answers;  ///< of the batch sizes for which something was found
  bool finished = true;              ///< false: `max_nodes` ended it, what is there may not be the best
};

/// @param samples rising; the paper's 1, 2, 3, …, or one. @param max_nodes of the search tree of each; a count and not
/// seconds, so that equal requests get equal plans. Where the nodes run out, gap is by lower_bound_seconds.
DepthFirstAnswer search_depth_first(const ChoiceProblem& problem, std::span<const std::int64_t> samples,
                                    std::int64_t max_nodes);

}  // namespace strata
