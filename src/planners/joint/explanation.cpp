#include "planners/joint/explanation.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "planners/joint/plan_in_words.hpp"
#include "planners/states/sharded_plan.hpp"

namespace strata {
namespace {

/// "2.69 s, 24.46 GiB".
std::string cost_in_words(const KnownPlan& known) {
  return fmt::format("{:.6g} s, {}", known.found.step_seconds, gib(known.found.peak_bytes));
}

/// Of @p known over @p best, a sample.
std::string times_in_words(const KnownPlan& known, const KnownPlan& best) {
  return fmt::format("{:.4g} times as long", known.seconds_per_sample() / best.seconds_per_sample());
}

const Evaluation& found_of(const AskedMove& move) { return move.is_left_out() ? move.at_least : move.known->found; }

/// The best move that leads elsewhere, and how many there are.
std::string decision_in_words(Dimension dimension, const std::vector<AskedMove>& moves, const KnownPlan& best) {
  const AskedMove* next = nullptr;
  const AskedMove* next_left_out = nullptr;
  const AskedMove* smallest = nullptr;  // of those that are too large
  int fitting = 0, too_large = 0, refused = 0, left_out = 0;
  for (const AskedMove& move : moves) {
    if (move.known == &best) continue;
    const Evaluation& found = found_of(move);
    if (found.feasible() && move.is_left_out()) {
      ++left_out;
      if (next_left_out == nullptr || found.step_seconds < found_of(*next_left_out).step_seconds) next_left_out = &move;
    } else if (found.feasible()) {
      ++fitting;
      if (next == nullptr || is_better(*move.known, *next->known)) next = &move;
    } else if (found.peak_bytes > 0) {
      ++too_large;
      if (smallest == nullptr || found.peak_bytes < found_of(*smallest).peak_bytes) smallest = &move;
    } else {
      ++refused;
    }
  }
  const std::string counts =
      fmt::format("{} others fit, {} do not, {} cannot be lowered{}", fitting, too_large, refused,
                  left_out > 0 ? fmt::format(", {} by a bound are not noticeably faster", left_out) : "");
  if (next_left_out != nullptr &&
      (next == nullptr || found_of(*next_left_out).step_seconds < next->known->found.step_seconds)) {
    const double seconds = found_of(*next_left_out).step_seconds;
    return fmt::format("{}: next {}: at least {:.6g} s, {:.4g} times as long; {}", to_string(dimension),
                       next_left_out->words, seconds, seconds / best.found.step_seconds, counts);
  }
  if (next != nullptr) {
    return fmt::format("{}: next {}: {}, {}; {}", to_string(dimension), next->words, cost_in_words(*next->known),
                       times_in_words(*next->known, best), counts);
  }
  if (smallest == nullptr) return fmt::format("{}: nothing else can be; {}", to_string(dimension), counts);
  return fmt::format("{}: nothing else fits, next {}, which needs at least {}; {}", to_string(dimension),
                     smallest->words, gib(found_of(*smallest).peak_bytes), counts);
}

std::string single_in_words(const AskedSingle& single, const KnownPlan& best) {
  if (single.known == nullptr) {
    return fmt::format("{}: {}", single.mode, single.refusal.empty() ? "outside of what is searched" : single.refusal);
  }
  if (!single.known->fits()) return fmt::format("{}: {}", single.mode, single.known->found.missing);
  return fmt::format("{}: {}, {}", single.mode, cost_in_words(*single.known), times_in_words(*single.known, best));
}

/// Of plans that fit, those that no other one is both faster and smaller than, fastest first.
std::vector<const KnownPlan*> frontier(const KnownPlans& known) {
  std::vector<const KnownPlan*> order;
  for (const KnownPlan& each : known.all()) {
    if (each.fits()) order.push_back(&each);
  }
  std::ranges::stable_sort(order, [](const KnownPlan* a, const KnownPlan* b) { return is_better(*a, *b); });
  std::vector<const KnownPlan*> front;
  for (const KnownPlan* each : order) {
    if (front.empty() || each->found.peak_bytes < front.back()->found.peak_bytes) front.push_back(each);
  }
  return front;
}

/// The best plan of other degrees.
const KnownPlan* runner_up(const JointAnswer& answer) {
  const std::string degrees = degrees_of_plan_in_words(answer.best.plan);
  const KnownPlan* best = nullptr;
  for (const KnownPlan& each : answer.known.all()) {
    if (!each.fits() || degrees_of_plan_in_words(each.plan) == degrees) continue;
    if (best == nullptr || is_better(each, *best)) best = &each;
  }
  return best;
}

std::string gap_in_words(const JointAnswer& answer) {
  const double seconds = answer.best.found.step_seconds;
  if (answer.num_combinations == 0 || answer.kernel_seconds == 0.0) return "no bound is known";
  return fmt::format("kernels alone take at least {:.6g} s with every one of {} combinations of degrees: gap {:.2g}",
                     answer.kernel_seconds, answer.num_combinations,
                     std::max(0.0, 1.0 - answer.kernel_seconds / seconds));
}

}  // namespace

Plan with_explanation(const JointAnswer& answer) {
  const ModelGraph& graph = answer.request.graph;
  Plan plan = answer.best.plan;
  Why& why = plan.why;
  why.predicted_seconds = answer.best.found.step_seconds;
  why.predicted_peak_bytes = answer.best.found.peak_bytes;
  why.binding = fmt::format("{}; of {} plans {} were simulated, until no single decision made it better; {}",
                            plan_in_words(plan, graph), answer.known.all().size(), answer.known.num_simulated(),
                            gap_in_words(answer));
  if (!answer.without_candidates.empty()) {
    why.binding += fmt::format("; without other modes' plans as candidates: {}", answer.without_candidates);
  }
  if (const KnownPlan* next = runner_up(answer)) {
    why.runner_up = fmt::format("{}: {}", plan_in_words(next->plan, graph), cost_in_words(*next));
  }
  for (const auto& [dimension, moves] : answer.moves) {
    why.decisions.push_back(decision_in_words(dimension, moves, answer.best));
  }
  for (const AskedSingle& single : answer.singles) why.singles.push_back(single_in_words(single, answer.best));
  for (const KnownPlan* each : frontier(answer.known)) {
    why.frontier.push_back(fmt::format("{}: {}", cost_in_words(*each), plan_in_words(each->plan, graph)));
  }
  return plan;
}

std::string least_plan_in_words(const PlanRequest& request, const KnownPlan& least, const KnownPlans& known) {
  const MemoryPeak peak = request.evaluate->memory(least.plan).peak;
  const auto of = [&](Category category) { return gib(peak.bytes[static_cast<int>(category)]); };
  const std::int64_t needed = least.found.peak_bytes;
  return fmt::format(
      "{}: of {} plans the one that needs least, {}, needs {}, {} bytes too much; of it parameters {}, gradients {}, "
      "optimizer states {}, activations {}, on their way between ranks {}",
      nothing_fits(request.base), known.all().size(), plan_in_words(least.plan, request.graph), gib(needed),
      needed - request.base.device_capacity_bytes, of(Category::parameter), of(Category::gradient),
      of(Category::optimizer), of(Category::activation), of(Category::communication));
}

}  // namespace strata
