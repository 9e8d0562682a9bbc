#include "planners/joint/ablation.hpp"

#include <fmt/format.h>

#include "base/error.hpp"
#include "planners/joint/dimension.hpp"
#include "planners/joint/joint_search.hpp"
#include "planners/joint/plan_in_words.hpp"
#include "planners/states/sharded_plan.hpp"

namespace strata {
namespace {

double seconds_per_sample(const Plan& plan) {
  return plan.why.predicted_seconds / static_cast<double>(plan.global_batch);
}

std::string found(const PlanRequest& request, const Plan& best) {
  try {
    const Plan plan = best_joint_plan(request);
    return fmt::format("{:.6g} s, {}, {:.4g} times as long: {}", plan.why.predicted_seconds,
                       gib(plan.why.predicted_peak_bytes), seconds_per_sample(plan) / seconds_per_sample(best),
                       plan_in_words(plan, request.graph));
  } catch (const Unsupported& refusal) {
    return refusal.what();
  } catch (const OutOfMemory& refusal) {
    return refusal.what();
  }
}

}  // namespace

std::vector<std::string> found_without_each_dimension(const PlanRequest& request, const Plan& best) {
  const std::string left_out = request.option<std::string>("without");
  const Dimensions dimensions(left_out);
  std::vector<std::string> lines;
  for (const Dimension dimension : all_dimensions) {
    if (!dimensions.has(dimension)) continue;
    PlanRequest without = request;
    const std::string name{to_string(dimension)};
    without.options["without"] = left_out == "none" ? name : fmt::format("{},{}", left_out, name);
    lines.push_back(fmt::format("{}: {}", name, found(without, best)));
  }
  return lines;
}

}  // namespace strata
