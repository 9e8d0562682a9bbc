#include "planners/pipelines/micro_batches.hpp"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <optional>
#include <utility>

#include "base/error.hpp"

namespace strata {
namespace {

/// 1 stage is asked for where the option says so; 0: the mode takes as many as it likes.
bool may_have_stages(const PlanRequest& request) {
  const auto stages = request.options.find("stages");
  return stages != request.options.end() && std::get<std::int64_t>(stages->second) != 1;
}

/// All data ranks have equally many samples of a micro-batch.
bool shares_evenly(const Plan& plan) {
  return plan.global_batch / plan.schedule.micro_batches % axis_size(plan.mesh, "data") == 0;
}

}  // namespace

Plan plan_with_micro_batches(const Planner& planner, const PlanRequest& request) {
  PlanRequest asked = request;
  asked.base.schedule.micro_batches = 1;
  if (!may_have_stages(request)) return planner.plan(asked);
  const bool knows_seconds = request.evaluate != nullptr && request.evaluate->knows_seconds();
  if (const auto own = asked.options.find("micro_batches"); own != asked.options.end() && knows_seconds) {
    own->second = std::string(planner_word);
    return planner.plan(asked);
  }
  if (request.base.global_batch == 0) return planner.plan(asked);
  std::optional<Plan> best;
  double least_seconds = 0.0;
  std::exception_ptr refusal;
  for (std::int64_t count = 1; count <= std::min(request.base.global_batch, most_micro_batches_tried); ++count) {
    if (request.base.global_batch % count != 0) continue;
    asked.base.schedule.micro_batches = static_cast<int>(count);
    try {
      Plan plan = planner.plan(asked);
      if (count > 1 && !shares_evenly(plan)) continue;
      if (!knows_seconds) {
        best = std::move(plan);
        continue;
      }
      const Evaluation found = (*request.evaluate)(plan);
      if (!found.feasible() || (best && found.step_seconds >= least_seconds)) continue;
      least_seconds = found.step_seconds;
      best = std::move(plan);
    } catch (const CostsUnknown&) {
      throw;
    } catch (const Unsupported&) {
      if (!refusal) refusal = std::current_exception();
    } catch (const OutOfMemory&) {
      if (!refusal) refusal = std::current_exception();
    }
  }
  if (best) return *std::move(best);
  if (refusal) std::rethrow_exception(refusal);
  asked.base.schedule.micro_batches = 1;
  return planner.plan(asked);
}

}  // namespace strata
