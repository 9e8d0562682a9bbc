#include "planners/joint/joint_search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "planners/even_micro_batches.hpp"
#include "planners/joint/combinations.hpp"
#include "planners/joint/dimension.hpp"
#include "planners/joint/explanation.hpp"
#include "planners/joint/known_plans.hpp"
#include "planners/joint/local_search.hpp"
#include "planners/joint/moves.hpp"
#include "planners/joint/neighbourhood.hpp"
#include "planners/joint/plans_of_combinations.hpp"
#include "planners/joint/relief.hpp"
#include "planners/joint/single_plans.hpp"

namespace strata {
namespace {

/// On one rank without a limit there is nothing to compare.
Plan only_choice(const PlanRequest& request) {
  const Plan& base = request.base;
  if (base.mesh.num_ranks() == 1 && base.device_capacity_bytes == 0 && base.global_batch > 0) {
    Plan plan = base;
    plan.mesh.axes = {{"data", 1}};
    plan.why.binding = "nothing: one rank, and no limit of its memory";
    return plan;
  }
  const std::string& cluster = request.cluster.name;
  throw CostsUnknown(fmt::format(
      "{} on {} ranks: plans are compared by what their Programs take, and nobody knows what kernels and collectives "
      "take on cluster {}: name a described one, or have a profile",
      base.strategy, base.mesh.num_ranks(), cluster.empty() ? "(unnamed)" : cluster));
}

class JointSearch {
 public:
  explicit JointSearch(const PlanRequest& request)
      : request_(request), dimensions_(request.option<std::string>("without")), known_(request, dimensions_) {}

  Plan run() {
    const bool is_batch_open = request_.base.global_batch == 0;
    if (is_batch_open) add_single_plans();  // One of them chooses it.
    if (is_batch_open && known_.best() == nullptr) refuse_batch();
    const Combinations combinations(request_, dimensions_,
                                    is_batch_open ? known_.best()->plan.global_batch : request_.base.global_batch);
    const std::string refusal = ask_for_combinations(request_, dimensions_, combinations, known_);
    Neighbourhood neighbourhood(request_, combinations, known_);
    LocalSearch search(request_, dimensions_, neighbourhood);
    search.improve(all_known());
    std::string without_candidates;
    if (request_.option<bool>("seeds") && !is_batch_open) {
      without_candidates =
          known_.one_fits() ? fmt::format("{:.6g} s", known_.best()->found.step_seconds) : "nothing fits";
      add_single_plans();
      search.improve(candidates());
    }
    const KnownPlan* best = known_.best();
    if (best == nullptr || !best->is_possible()) {
      refuse_all(combinations.refusal().empty() ? refusal : combinations.refusal());
    }
    if (!best->fits()) refuse_memory(*best, combinations);
    return explained(combinations, neighbourhood, std::move(without_candidates));
  }

 private:
  void add_single_plans() {
    const bool may_be_stale = request_.option<std::int64_t>("staleness") == 1;
    const bool chooses_micro_batches = request_.option<std::string>("micro_batches") == planner_word;
    std::vector<Plan> plans;
    std::vector<std::size_t> places;
    for (SinglePlan& single : single_plans(request_, may_be_stale, chooses_micro_batches)) {
      if (single.plan) {
        places.push_back(singles_.size());
        plans.push_back(*std::move(single.plan));
      }
      singles_.push_back({.mode = std::move(single.mode), .refusal = std::move(single.refusal)});
    }
    const std::vector<const KnownPlan*> answers = known_.ask(std::move(plans));
    for (std::size_t a = 0; a < answers.size(); ++a) singles_[places[a]].known = answers[a];
  }

  std::vector<const KnownPlan*> candidates() const {
    std::vector<const KnownPlan*> inside;
    for (const AskedSingle& single : singles_) {
      if (single.known != nullptr) inside.push_back(single.known);
    }
    return inside;
  }

  std::vector<const KnownPlan*> all_known() const {
    std::vector<const KnownPlan*> all;
    for (const KnownPlan& known : known_.all()) all.push_back(&known);
    return all;
  }

  /// With what the first of the modes that choose the batch says.
  [[noreturn]] void refuse_batch() const {
    const auto chooses = [](const AskedSingle& single) { return find_planner(single.mode).chooses_batch(); };
    const auto first = std::ranges::find_if(singles_, chooses);
    throw Unsupported(fmt::format("{} on {} ranks: no mode that chooses the batch has a plan{}", request_.base.strategy,
                                  request_.base.mesh.num_ranks(),
                                  first == singles_.end() ? "" : fmt::format(": {}", first->refusal)));
  }

  [[noreturn]] void refuse_all(const std::string& why) const {
    const auto& without = request_.option<std::string>("without");
    throw Unsupported(fmt::format("{} on {} ranks: no plan of the space can be lowered{}: {}", request_.base.strategy,
                                  request_.base.mesh.num_ranks(),
                                  without == "none" ? "" : fmt::format(" with without = \"{}\"", without), why));
  }

  [[noreturn]] void refuse_memory(const KnownPlan& least, const Combinations& combinations) const {
    const std::string relief = relief_in_words(request_, dimensions_, combinations.all_degrees(), least);
    throw OutOfMemory(least_plan_in_words(request_, least, known_) + (relief.empty() ? "" : "; " + relief));
  }

  /// For the frontier: what holds less and takes longer is left out by its bound elsewhere.
  void add_ways_to_hold(const KnownPlan& from) {
    if (!dimensions_.has(Dimension::states)) return;
    std::vector<Plan> plans;
    for (Move& held : moves_of_all_states(request_, from.plan)) plans.push_back(std::move(held.plan));
    known_.ask(std::move(plans));
  }

  MovesByDimension moves_of_all_dimensions(const KnownPlan& from, Neighbourhood& neighbourhood) const {
    MovesByDimension moves;
    for (const Dimension dimension : all_dimensions) {
      if (!dimensions_.has(dimension)) continue;
      moves.emplace_back(dimension, neighbourhood.moves(dimension, from, LeftOutBy::bounds));
    }
    return moves;
  }

  /// The best plan beside what its next decisions would cost, none of which is noticeably better.
  Plan explained(const Combinations& combinations, Neighbourhood& neighbourhood, std::string without_candidates) {
    const KnownPlan* best = nullptr;
    MovesByDimension moves;
    while (best != known_.best()) {
      best = known_.best();
      add_ways_to_hold(*best);
      moves = moves_of_all_dimensions(*best, neighbourhood);
    }
    return with_explanation({.request = request_,
                             .best = *best,
                             .known = known_,
                             .moves = std::move(moves),
                             .singles = std::move(singles_),
                             .without_candidates = std::move(without_candidates),
                             .num_combinations = static_cast<int>(combinations.in_order().size()),
                             .kernel_seconds = combinations.kernel_seconds()});
  }

  const PlanRequest& request_;
  Dimensions dimensions_;
  KnownPlans known_;
  std::vector<AskedSingle> singles_;
};

}  // namespace

Plan best_joint_plan(const PlanRequest& request) {
  refuse_uneven_micro_batches(request.base);
  const bool simulates = request.evaluate != nullptr && request.evaluate->knows_seconds();
  return simulates ? JointSearch(request).run() : only_choice(request);
}

}  // namespace strata
