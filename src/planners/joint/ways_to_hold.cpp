#include "planners/joint/ways_to_hold.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <ranges>
#include <span>
#include <utility>
#include <vector>

#include "base/at_once.hpp"
#include "planners/joint/by_few_parts.hpp"
#include "planners/joint/least_first.hpp"
#include "planners/joint/moves.hpp"

namespace strata {
namespace {

/// With every block run again, by some way of @p held to hold states: asked in turn, as mostly the last one fits.
bool one_fits_if_all_runs_again(const PlanRequest& request, KnownPlans& known, std::span<const Move> held) {
  const int all = static_cast<int>(request.graph.blocks.size());
  for (const Recompute kind : ways_to_recompute) {
    for (const Move& way : std::views::reverse(held)) {
      const KnownPlan* answer = known.ask(with_recompute(request, way.plan, kind, all));
      if (answer != nullptr && answer->fits()) return true;
    }
  }
  return false;
}

/// Plans of one way to hold states and one to recompute: nothing runs again, and then more and more.
using Ladder = std::vector<Plan>;

std::vector<Ladder> ladders_of(const PlanRequest& request, std::span<const Move> held) {
  std::vector<Ladder> ladders;
  for (const Move& way : held) {
    for (const Recompute kind : ways_to_recompute) {
      Ladder& ladder = ladders.emplace_back();
      ladder.push_back(way.plan);
      for (Move& again : moves_to_recompute(request, way.plan, kind)) ladder.push_back(std::move(again.plan));
    }
  }
  return ladders;
}

/// Of @p plans, one of which is wanted: asks for those of which few parts say nothing, then for the others, until none
/// of them may be faster than @p fastest, which becomes the seconds of the fastest that fits.
/// @return by plan: it fits, or few of its parts say so and that it is slower.
std::vector<bool> ask_for_fastest(const PlanRequest& request, KnownPlans& known, std::vector<Plan> plans,
                                  double& fastest) {
  std::vector<ByFewParts> told(plans.size());
  at_once(plans.size(), static_cast<std::size_t>(request.num_threads), [&](std::size_t p) {
    const std::optional<Plan> inside = known.in_space(plans[p]);
    if (inside && !known.has(*inside)) told[p] = by_few_parts(request, *inside);
  });
  const auto about = [&](std::size_t p) { return told[p].about_seconds.value_or(0.0); };
  std::vector<std::size_t> fitting;
  std::vector<bool> fit(plans.size(), false);
  for (std::size_t p = 0; p < plans.size(); ++p) {
    fit[p] = told[p].least.feasible();
    if (fit[p]) fitting.push_back(p);
  }
  ask_least_first(
      known, std::move(plans), std::move(fitting), about,
      [&](std::size_t p) { return may_be_faster(about(p), fastest); },
      [&](std::size_t p, const KnownPlan* answer) {
        fit[p] = answer != nullptr && answer->fits();
        if (fit[p]) fastest = std::min(fastest, answer->found.step_seconds);
      });
  return fit;
}

}  // namespace

bool trades_time_for_memory(const Dimensions& dimensions) {
  return dimensions.has(Dimension::states) && dimensions.has(Dimension::recompute);
}

WaysToHold ways_to_hold(const PlanRequest& request, const Dimensions& dimensions, KnownPlans& known,
                        const Plan& plain) {
  const KnownPlan* from = known.ask(plain);
  if (from == nullptr) return {};
  if (from->fits()) return {.fit = true, .seconds = from->found.step_seconds};
  if (!trades_time_for_memory(dimensions)) return {};
  WaysToHold ways{.need_recompute = true};
  const std::vector<Move> held = moves_of_all_states(request, from->plan);
  if (!one_fits_if_all_runs_again(request, known, held)) return ways;
  std::vector<Ladder> ladders = ladders_of(request, held);
  for (std::size_t rung = 0; !ladders.empty(); ++rung) {
    std::vector<Plan> next;
    for (const Ladder& ladder : ladders) next.push_back(ladder[rung]);
    const std::vector<bool> fit = ask_for_fastest(request, known, std::move(next), ways.seconds);
    std::vector<Ladder> open;
    for (std::size_t l = 0; l < ladders.size(); ++l) {
      ways.fit = ways.fit || fit[l];
      if (fit[l] && rung == 0) ways.need_recompute = false;
      if (!fit[l] && rung + 1 < ladders[l].size()) open.push_back(std::move(ladders[l]));
    }
    ladders = std::move(open);
  }
  return ways;
}

}  // namespace strata
