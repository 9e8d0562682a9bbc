#pragma once

/// @file
/// Asks about plans in the order of what is told of them beforehand, and stops where none of the others may be wanted.

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "planners/joint/known_plans.hpp"

namespace strata {

/// Asks for those of @p plans that are in @p order, the least first: at once those of which nothing is told, then a few
/// at a time, until @p may_be_better is false of the next one.
/// @param least seconds, by plan; 0: nothing is told.
/// @param answered is told of each (plan, answer), before the next are asked.
template <typename Least, typename MayBeBetter, typename Answered>
void ask_least_first(KnownPlans& known, std::vector<Plan> plans, std::vector<std::size_t> order, const Least& least,
                     const MayBeBetter& may_be_better, const Answered& answered) {
  constexpr std::size_t at_a_time = 2;  // also on one thread: which plans are asked is told by plans alone
  std::ranges::stable_sort(order, {}, least);
  for (std::size_t next = 0; next < order.size();) {
    const std::size_t first = next;
    std::vector<Plan> together;
    while (next < order.size() && may_be_better(order[next]) &&
           (least(order[next]) == 0.0 || together.size() < at_a_time)) {
      together.push_back(std::move(plans[order[next++]]));
    }
    if (together.empty()) return;
    const std::vector<const KnownPlan*> answers = known.ask(std::move(together));
    for (std::size_t a = 0; a < answers.size(); ++a) answered(order[first + a], answers[a]);
  }
}

}  // namespace strata
