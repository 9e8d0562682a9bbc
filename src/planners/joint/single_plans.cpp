#include "planners/joint/single_plans.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.hpp"
#include "planners/pipelines/micro_batches.hpp"

namespace strata {
namespace {

constexpr std::array<std::string_view, 3> stale_modes = {"2bw", "cdp-v1", "cdp-v2"};

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
  std::vector<SinglePlan> found;
  if (request.base.global_batch > 0) {
    for (const Planner* mode : modes) found.push_back(plan_of_mode(request, *mode, {}, chooses_micro_batches));
    return found;
  }
  PlanRequest with_batch = request;
  for (const Planner* mode : modes) {
    if (!mode->chooses_batch()) continue;
    SinglePlan& single = found.emplace_back(plan_of_mode(request, *mode, {}, chooses_micro_batches));
    if (single.plan && with_batch.base.global_batch == 0) with_batch.base.global_batch = single.plan->global_batch;
  }
  for (const Planner* mode : modes) {
    if (!mode->chooses_batch()) found.push_back(plan_of_mode(with_batch, *mode, {}, chooses_micro_batches));
  }
  std::ranges::sort(found, {}, &SinglePlan::mode);
  return found;
}

}  // namespace strata
