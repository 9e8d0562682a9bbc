#include "planners/joint/single_plans.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/at_once.hpp"
#include "base/error.hpp"
#include "planners/pipelines/micro_batches.hpp"

namespace strata {
namespace {

constexpr std::array<std::string_view, 3> stale_modes = {"2bw", "cdp-v1", "cdp-v2"};

/// SUMMA's Programs have a product and two broadcasts for each of at least as many panels as the longer side of the
/// grid is long, so that they grow with the ranks where those of no other mode do, and each rank of the grid has
/// another one. Empty: short enough to be looked at.
std::string why_too_long(const PlanRequest& request, std::string_view mode) {
  constexpr double most_of_a_rank = 50e3, most_of_all = 10e6, passes = 3.0, a_panel = 3.0;
  if (mode != "summa") return "";
  const auto products = std::ranges::count(request.graph.operators, OperatorKind::linear, &Operator::kind);
  const int ranks = request.base.mesh.num_ranks();
  const double panels = std::ceil(std::sqrt(ranks));
  const double instructions =
      static_cast<double>(products) * request.base.schedule.micro_batches * panels * passes * a_panel;
  const double most = std::min(most_of_a_rank, most_of_all / ranks);
  if (instructions <= most) return "";
  return fmt::format(
      "not asked: {} products of {} micro-batches on {} ranks in at least {} panels are about {:.0f} products and "
      "broadcasts a rank, and up to {:.0f} of each of so many ranks are looked at",
      products, request.base.schedule.micro_batches, ranks, panels, instructions, most);
}

Plan planned(const PlanRequest& request, const Planner& mode, std::map<std::string, OptionValue> options,
             bool chooses_micro_batches) {
  PlanRequest of_mode = request;
  of_mode.base.strategy = mode.name();
  of_mode.options = mode.with_defaults(std::move(options));
  return chooses_micro_batches ? plan_with_micro_batches(mode, of_mode) : mode.plan(of_mode);
}

}  // namespace

SinglePlan plan_of_mode(const PlanRequest& request, const Planner& mode, std::map<std::string, OptionValue> options,
                        bool chooses_micro_batches) {
  SinglePlan single{.mode = std::string(mode.name()), .plan = std::nullopt, .refusal = ""};
  if (std::string why = why_too_long(request, mode.name()); !why.empty()) {
    single.refusal = std::move(why);
    return single;
  }
  if (request.base.global_batch == 0 && !mode.chooses_batch()) {
    single.refusal = "it does not choose the batch";
    return single;
  }
  try {
    single.plan = planned(request, mode, std::move(options), chooses_micro_batches);
  } catch (const Unsupported& refusal) {
    single.refusal = refusal.what();
  } catch (const OutOfMemory& refusal) {
    single.refusal = refusal.what();
  } catch (const UserError& refusal) {
    single.refusal = refusal.what();
  }
  return single;
}

std::vector<SinglePlan> single_plans(const PlanRequest& request, bool may_be_stale, bool chooses_micro_batches) {
  std::vector<const Planner*> modes;
  for (const Planner* mode : all_planners()) {
    const bool is_stale = std::ranges::find(stale_modes, mode->name()) != stale_modes.end();
    if (mode->name() != request.base.strategy && (may_be_stale || !is_stale)) modes.push_back(mode);
  }
  const auto plans_of = [&](const PlanRequest& asked, const std::vector<const Planner*>& which) {
    std::vector<SinglePlan> found(which.size());
    at_once(which.size(), static_cast<std::size_t>(request.num_threads),
            [&](std::size_t m) { found[m] = plan_of_mode(asked, *which[m], {}, chooses_micro_batches); });
    return found;
  };
  if (request.base.global_batch > 0) return plans_of(request, modes);
  const auto first_other = std::ranges::stable_partition(modes, &Planner::chooses_batch);
  std::vector<SinglePlan> found = plans_of(request, {modes.begin(), first_other.begin()});
  PlanRequest with_batch = request;
  const auto made = std::ranges::find_if(found, [](const SinglePlan& single) { return single.plan.has_value(); });
  if (made != found.end()) with_batch.base.global_batch = made->plan->global_batch;
  for (SinglePlan& single : plans_of(with_batch, {first_other.begin(), modes.end()})) {
    found.push_back(std::move(single));
  }
  std::ranges::sort(found, {}, &SinglePlan::mode);
  return found;
}

}  // namespace strata
