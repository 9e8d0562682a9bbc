#pragma once

/// @file
/// One decision after another, whichever paper it is of, from the plans that are best before any.

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <vector>

#include "planners/joint/dimension.hpp"
#include "planners/joint/known_plans.hpp"
#include "planners/joint/neighbourhood.hpp"
#include "planners/planner.hpp"

namespace strata {

class LocalSearch {
 public:
  /// @param request with the options of `auto`. All of them outlive this.
  LocalSearch(const PlanRequest& request, const Dimensions& dimensions, Neighbourhood& neighbourhood)
      : request_(request), dimensions_(dimensions), neighbourhood_(neighbourhood) {}

  /// Tries decisions from those of @p plans, and of the plans of calls before, that differ most: of none twice.
  void improve(std::span<const KnownPlan* const> plans);

 private:
  void improve_in_rounds(std::vector<const KnownPlan*> starts);
  const KnownPlan* after_all_decisions(const KnownPlan* from);
  void note_best(std::size_t round, const KnownPlan& plan);
  std::int64_t beam() const;

  const PlanRequest& request_;
  const Dimensions& dimensions_;
  Neighbourhood& neighbourhood_;
  std::vector<const KnownPlan*> given_;
  std::set<const KnownPlan*> improved_;           ///< of these, those from which decisions were tried first
  std::vector<const KnownPlan*> best_of_rounds_;  ///< the best that so many rounds of decisions have led to, or fewer
};

}  // namespace strata
