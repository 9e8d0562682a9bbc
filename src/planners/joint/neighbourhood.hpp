#pragma once

/// @file
/// What the neighbours of a plan (moves.hpp) need and take, as far as they may be better than it: what bounds and few
/// parts of a step say that they are not is not asked.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planners/joint/combinations.hpp"
#include "planners/joint/dimension.hpp"
#include "planners/joint/known_plans.hpp"
#include "planners/planner.hpp"

namespace strata {

struct AskedMove {
  std::string words;
  Evaluation at_least{};                  ///< what is known without asking
  std::optional<double> about_seconds{};  ///< the same, as few of its blocks or an even vocabulary say
  const KnownPlan* known = nullptr;       ///< null: left out, too large or not noticeably faster than the best
  bool is_left_out() const { return known == nullptr; }
};

/// What says of moves that are not asked that they are no better.
enum class LeftOutBy : std::uint8_t {
  bounds,    ///< never more than they take or need
  estimates  ///< quicker or closer, and off by a little
};

class Neighbourhood {
 public:
  /// All of them outlive this.
  Neighbourhood(const PlanRequest& request, const Combinations& combinations, KnownPlans& known)
      : request_(request), combinations_(combinations), known_(known) {}

  /// Of @p from, those that may be noticeably better than it; of the others what is known.
  std::vector<AskedMove> moves(Dimension dimension, const KnownPlan& from, LeftOutBy left_out_by);

 private:
  struct About;
  About about_plan(const KnownPlan& from) const;
  void add_bounds(const std::vector<Plan>& plans, double seconds, const About& about_from,
                  std::vector<AskedMove>& asked) const;
  void ask_fitting(std::vector<Plan> plans, double seconds, double uncertain, std::vector<AskedMove>& asked);

  const PlanRequest& request_;
  const Combinations& combinations_;
  KnownPlans& known_;
};

}  // namespace strata
