#include "planners/joint/starts.hpp"

#include <algorithm>
#include <iterator>

#include "planners/joint/degree_moves.hpp"
#include "planners/joint/moves.hpp"

namespace strata {
namespace {

bool goes_round(const Plan& plan) {
  return std::ranges::any_of(plan.operators,
                             [](const OperatorRule& rule) { return rule.algorithm == MatmulAlgorithm::ring; });
}

/// A stage and a tensor is cut over as many, and products go round rings in both or in neither.
bool has_as_many_ranks(const Plan& a, const Plan& b) {
  const ParallelDegrees of_a = degrees_of(a), of_b = degrees_of(b);
  return of_a.places == of_b.places && of_a.tensor == of_b.tensor && has_layouts(a.mesh) == has_layouts(b.mesh) &&
         goes_round(a) == goes_round(b);
}

bool has_as_many_passes(const Plan& a, const Plan& b) {
  return a.stages.count == b.stages.count && a.schedule.micro_batches == b.schedule.micro_batches;
}

}  // namespace

std::vector<const KnownPlan*> best_of_different_degrees(std::span<const KnownPlan* const> plans, std::int64_t beam) {
  constexpr double close = 1.01, far = 1.25;  // times the best plan's seconds
  std::vector<const KnownPlan*> order;
  std::ranges::copy_if(plans, std::back_inserter(order), &KnownPlan::is_possible);
  std::ranges::stable_sort(order, [](const KnownPlan* a, const KnownPlan* b) { return is_better(*a, *b); });
  if (order.empty()) return {};
  const KnownPlan& best = *order.front();
  const bool one_fits = best.fits();
  const std::int64_t most = one_fits ? 2 * beam : beam;
  const double most_behind = one_fits && runs_again(best.plan) ? far_where_memory_is_short : far;
  std::vector<const KnownPlan*> starts;
  for (const KnownPlan* known : order) {
    const bool is_far = one_fits && !is_within(most_behind, *known, best);
    if (is_far || std::ssize(starts) == most) break;
    const bool is_close = one_fits && is_within(close, *known, best);
    const bool is_alike = std::ranges::any_of(starts, [&](const KnownPlan* start) {
      return has_as_many_ranks(start->plan, known->plan) && (!is_close || has_as_many_passes(start->plan, known->plan));
    });
    if (!is_alike) starts.push_back(known);
  }
  return starts;
}

}  // namespace strata
