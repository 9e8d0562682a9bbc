#include "planners/joint/ablation.hpp"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "planners/joint/dimension.hpp"
#include "planners/joint/plan_in_words.hpp"
#include "planners/joint/single_plans.hpp"
#include "planners/states/sharded_plan.hpp"

namespace strata {
namespace {

double seconds_per_sample(const Plan& plan) {
  return plan.why.predicted_seconds / static_cast<double>(plan.global_batch);
}

std::string in_words(const SinglePlan& without, const Plan& best, const ModelGraph& graph) {
  if (!without.plan) return without.refusal;
  const Plan& plan = *without.plan;
  return fmt::format("{:.6g} s, {}, {:.4g} times as long: {}", plan.why.predicted_seconds,
                     gib(plan.why.predicted_peak_bytes), seconds_per_sample(plan) / seconds_per_sample(best),
                     plan_in_words(plan, graph));
}

}  // namespace

std::vector<std::string> found_without_each_dimension(const PlanRequest& request, const Plan& best) {
  if (best.why.predicted_seconds == 0.0) return {};
  const Planner& mode = find_planner(request.base.strategy);
  const std::string left_out = request.option<std::string>("without");
  const Dimensions dimensions(left_out);
  std::vector<std::string> lines;
  for (const Dimension dimension : all_dimensions) {
    if (!dimensions.has(dimension)) continue;
    std::map<std::string, OptionValue> options = request.options;
    const std::string name{to_string(dimension)};
    options["without"] = left_out == "none" ? name : fmt::format("{},{}", left_out, name);
    options["ablation"] = false;
    const SinglePlan without = plan_of_mode(request, mode, std::move(options), false);
    lines.push_back(fmt::format("{}: {}", name, in_words(without, best, request.graph)));
  }
  return lines;
}

}  // namespace strata
