#include "planners/joint/combinations.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "planners/joint/degree_moves.hpp"

namespace strata {
namespace {

PlanRequest asked_with(const PlanRequest& request, const Dimensions& dimensions, std::int64_t global_batch,
                       Recompute recompute) {
  PlanRequest asked = request;
  asked.base.global_batch = global_batch;
  if (dimensions.has(Dimension::recompute)) asked.base.recompute = recompute;
  return asked;
}

}  // namespace

Combinations::Combinations(const PlanRequest& request, const Dimensions& dimensions, std::int64_t global_batch)
    : asked_(asked_with(request, dimensions, global_batch, Recompute::none)), bounds_(asked_, HeldStates::any) {
  const PlanRequest smallest = asked_with(request, dimensions, global_batch, Recompute::block);
  StepBounds memory_bounds(smallest, HeldStates::any);
  const std::int64_t capacity = asked_.base.device_capacity_bytes;
  for (const ParallelDegrees& degrees : asked_degrees(asked_)) {
    all_degrees_.push_back(degrees);
    if (!dimensions.has(Dimension::stages) && degrees.stages() > 1) continue;
    if (!dimensions.has(Dimension::tensor) && degrees.tensor > 1) continue;
    try {
      Combination c{.degrees = degrees, .plan = plan_of_degrees(asked_, degrees)};
      c.seconds = bounds_.seconds(degrees, c.plan);
      c.kernel_seconds = bounds_.kernel_seconds(degrees, c.plan);
      c.is_too_large = capacity > 0 && memory_bounds.bytes(degrees, c.plan) > capacity;
      in_order_.push_back(std::move(c));
    } catch (const Unsupported& refusal) {
      if (refusal_.empty()) refusal_ = refusal.what();
    } catch (const UserError& refusal) {
      if (refusal_.empty()) refusal_ = refusal.what();
    }
  }
  std::ranges::stable_sort(in_order_, {}, &Combination::seconds);
}

double Combinations::kernel_seconds() const {
  double least = infinity;
  for (const Combination& c : in_order_) least = std::min(least, c.kernel_seconds);
  return least;
}

double Combinations::seconds_of_passes(const Plan& plan) const {
  try {
    return bounds_.seconds_of_alike_blocks(degrees_of(plan), plan);
  } catch (const Unsupported&) {
    return 0.0;  // It is asked, and says so.
  } catch (const UserError&) {
    return 0.0;
  }
}

}  // namespace strata
