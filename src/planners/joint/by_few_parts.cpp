#include "planners/joint/by_few_parts.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/error.hpp"
#include "planners/states/sharded_plan.hpp"

namespace strata {
namespace {

/// Where blocks do not add the same, as buckets of gradients end within them. Of 307 moves of OSDP's deep models two
/// were faster than told by more than this, as a plan is mostly off as much as the one that it is compared with.
constexpr double off_by_buckets = 0.002;

/// Most pipelines that do not fit do not fit there, where most micro-batches are in flight.
Evaluation least_of_first_place(const Evaluate& evaluate, const Plan& plan) {
  const std::vector<std::int64_t> peaks = evaluate.peaks_of_places(plan, std::array{0}, PeaksOf::few);
  if (peaks.empty() || peaks.front() <= plan.device_capacity_bytes) return {};
  return {.missing = fmt::format("the first place of the pipeline alone needs {}", gib(peaks.front())),
          .peak_bytes = peaks.front()};
}

}  // namespace

ByFewParts by_few_parts(const PlanRequest& request, const Plan& plan) {
  ByFewParts told;
  const bool is_limited = plan.device_capacity_bytes > 0;
  try {
    verify(plan, request.graph);
    if (is_limited) {
      told.least =
          plan.stages.count > 1 ? least_of_first_place(*request.evaluate, plan) : request.evaluate->least_memory(plan);
    }
    if (told.least.feasible()) told.about_seconds = request.evaluate->seconds_of_few(plan, Tokens::that_divide);
  } catch (const UserError&) {
    return {};
  }
  return told;
}

bool may_be_faster(double about_seconds, double seconds) { return about_seconds < (1.0 + off_by_buckets) * seconds; }

double uncertainty_by_few_parts(double about_seconds, double seconds) {
  constexpr double exact = 1e-7;
  // Of 91 moves of plans of which few blocks said all, none was faster than told by more than half of this.
  constexpr double off_by_the_move = 1e-5;
  return std::abs(seconds - about_seconds) <= exact * seconds ? off_by_the_move : off_by_buckets;
}

}  // namespace strata
