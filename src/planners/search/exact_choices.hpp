#pragma once

/// @file
/// The best choices for every batch size at once, exactly.
///
/// For each workspace that a choice may have, as the largest allowed: how bytes trade against seconds does not depend
/// on the batch, which changes the capacity alone. So each class is a Pareto front of (resident bytes, seconds) over
/// the ways to deal its operators to choices; the fronts of the classes are summed into two of about equal size; and
/// the best pair under a capacity is found by walking one up and the other down. A linear-programming bound (the convex
/// hulls' greedy) skips the workspaces that cannot win.
///
/// Where sizes have nothing in common a front can explode: beyond `max_front` points resident bytes are rounded up to a
/// grid. What is found still fits, and the bound says how far from the optimum it can be at most (BatchAnswer::gap).

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "planners/search/choice_problem.hpp"

namespace strata {

struct ExactOptions {
  std::size_t max_front = 20'000;  ///< points
};

/// Fronts are made when the first question needs them and serve all later ones.
class ExactSearch {
 public:
  /// @param problem outlives this. Its capacity is the one asked about where none is named.
  explicit ExactSearch(const ChoiceProblem& problem, const ExactOptions& options = {});
  ~ExactSearch();

  /// The fewest seconds for @p samples within @p capacity_bytes; nothing: no plan fits.
  std::optional<BatchAnswer> best(std::int64_t samples, std::int64_t capacity_bytes);

 private:
  class Tables;
  std::unique_ptr<Tables> tables_;
};

/// One answer for each of @p samples for which anything fits, in their order.
std::vector<BatchAnswer> search_exactly(const ChoiceProblem& problem, std::span<const std::int64_t> samples,
                                        const ExactOptions& options = {});

/// The answer with the fewest seconds a sample, of equals the larger batch; null: none.
const BatchAnswer* best_of(std::span<const BatchAnswer> answers);

/// No counts that fit for @p samples take fewer seconds: linear relaxation, the least over the allowed workspaces.
/// Infinity where nothing fits.
double lower_bound_seconds(const ChoiceProblem& problem, std::int64_t samples);

}  // namespace strata
