#include "planners/joint/local_search.hpp"

#include <algorithm>
#include <cstddef>
#include <ranges>
#include <utility>

#include "planners/joint/starts.hpp"

namespace strata {

void LocalSearch::improve(std::span<const KnownPlan* const> plans) {
  for (const KnownPlan* plan : plans) {
    if (std::ranges::find(given_, plan) == given_.end()) given_.push_back(plan);
  }
  std::vector<const KnownPlan*> starts = best_of_different_degrees(given_, beam());
  std::erase_if(starts, [&](const KnownPlan* start) { return !improved_.insert(start).second; });
  improve_in_rounds(std::move(starts));
}

/// One decision after another, of all @p starts. Then again of those that are best by now, as many as are asked for and
/// nearly as fast as the best plan of as many rounds, also from earlier starts, as long as going through all decisions
/// once is worth it.
void LocalSearch::improve_in_rounds(std::vector<const KnownPlan*> starts) {
  constexpr double worth = 1e-3;   // of a step's seconds
  constexpr double nearly = 1.05;  // times the best plan's seconds
  for (std::size_t round = 0; !starts.empty(); ++round) {
    std::vector<const KnownPlan*> better;
    for (const KnownPlan* start : starts) {
      const KnownPlan* improved = after_all_decisions(start);
      note_best(round, *improved);
      const bool is_worth_it = start->fits()
                                   ? improved->seconds_per_sample() < (1.0 - worth) * start->seconds_per_sample()
                                   : improved != start;
      if (is_worth_it && std::ranges::find(better, improved) == better.end()) better.push_back(improved);
    }
    if (const KnownPlan& best = *best_of_rounds_[round]; best.fits()) {
      std::erase_if(better, [&](const KnownPlan* plan) { return !is_within(nearly, *plan, best); });
    }
    std::ranges::stable_sort(better, [](const KnownPlan* a, const KnownPlan* b) { return is_better(*a, *b); });
    better.resize(std::min(better.size(), static_cast<std::size_t>(beam())));
    starts = std::move(better);
  }
}

void LocalSearch::note_best(std::size_t round, const KnownPlan& plan) {
  if (round == best_of_rounds_.size()) best_of_rounds_.push_back(round == 0 ? &plan : best_of_rounds_.back());
  for (const KnownPlan*& best : best_of_rounds_ | std::views::drop(round)) {
    if (is_better(plan, *best)) best = &plan;
  }
}

/// The best plan that one decision of each dimension in turn, or none, leads to from @p from.
const KnownPlan* LocalSearch::after_all_decisions(const KnownPlan* from) {
  for (const Dimension dimension : all_dimensions) {
    if (!dimensions_.has(dimension)) continue;
    const KnownPlan* best = from;
    for (const AskedMove& move : neighbourhood_.moves(dimension, *from, LeftOutBy::estimates)) {
      if (!move.is_left_out() && is_better(*move.known, *best)) best = move.known;
    }
    from = best;
  }
  return from;
}

std::int64_t LocalSearch::beam() const { return request_.option<std::int64_t>("beam"); }

}  // namespace strata
