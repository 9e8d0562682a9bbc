#include "planners/pipelines/degree_search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "planners/pipelines/step_bound.hpp"
#include "planners/states/sharded_plan.hpp"

namespace strata {
namespace {

struct PricedDegrees {
  ParallelDegrees degrees;
  Plan plan;
  double at_least_seconds = 0.0;
  Evaluation found{};  ///< where the simulator was asked
};

class DegreeSearch {
 public:
  explicit DegreeSearch(const PlanRequest& request) : request_(request) {
    for (const ParallelDegrees& degrees : asked_degrees(request)) {
      try {
        candidates_.push_back({.degrees = degrees, .plan = plan_of_degrees(request, degrees)});
      } catch (const Unsupported& refusal) {
        refused(refusal.what());
      } catch (const UserError& refusal) {
        refused(refusal.what());
      }
    }
    if (candidates_.empty()) refuse_all();
  }

  Plan best() {
    const bool simulates = request_.evaluate != nullptr && request_.evaluate->knows_seconds();
    if (!simulates && candidates_.size() == 1) return only_one();
    if (!simulates) {
      const std::string& cluster = request_.cluster.name;
      throw CostsUnknown(fmt::format(
          "{} on {} ranks: {} combinations of data, tensor and stage degrees are compared by what their Programs take, "
          "and nobody knows what kernels and collectives take on cluster {}: name a described one or have a profile, "
          "or set strategy.stages, strategy.chunks, strategy.tensor and strategy.sum",
          request_.base.strategy, num_ranks(), candidates_.size(), cluster.empty() ? "(unnamed)" : cluster));
    }
    StepBounds bounds(request_);
    for (PricedDegrees& c : candidates_) c.at_least_seconds = bounds.seconds(c.degrees, c.plan);
    std::ranges::stable_sort(candidates_, {}, &PricedDegrees::at_least_seconds);
    for (PricedDegrees& c : candidates_) {
      if (best_ != nullptr && c.at_least_seconds > best_->found.step_seconds) break;
      ask(c);
    }
    if (best_ == nullptr) refuse_memory();
    return explained();
  }

 private:
  int num_ranks() const { return request_.base.mesh.num_ranks(); }
  std::string words(const PricedDegrees& c) const { return in_words(c.degrees, num_ranks()); }
  void refused(const char* why) {
    if (why_refused_.empty()) why_refused_ = why;
  }
  [[noreturn]] void refuse_all() const {
    throw Unsupported(fmt::format("{} on {} ranks: no data, tensor and stage degrees: {}", request_.base.strategy,
                                  num_ranks(), why_refused_));
  }

  void ask(PricedDegrees& c) {
    c.found = (*request_.evaluate)(c.plan);
    ++num_asked_;
    if (!c.found.feasible()) {
      if (c.found.peak_bytes == 0) refused(c.found.missing.c_str());
      return;
    }
    const auto worth = [](const PricedDegrees& of) { return std::pair(of.found.step_seconds, of.degrees); };
    if (best_ == nullptr || worth(c) < worth(*best_)) {
      runner_up_ = std::exchange(best_, &c);
    } else if (runner_up_ == nullptr || worth(c) < worth(*runner_up_)) {
      runner_up_ = &c;
    }
  }

  Plan explained() const {
    const auto described = [&](const PricedDegrees& c) {
      return fmt::format("{}: {:.6g} s, {}", words(c), c.found.step_seconds, gib(c.found.peak_bytes));
    };
    Plan plan = best_->plan;
    plan.why.predicted_seconds = best_->found.step_seconds;
    plan.why.predicted_peak_bytes = best_->found.peak_bytes;
    const auto do_not_fit = std::ranges::count_if(
        candidates_, [](const PricedDegrees& c) { return c.found.peak_bytes > 0 && !c.found.feasible(); });
    plan.why.binding = fmt::format(
        "{}; of {} combinations {} were simulated, of which {} do not fit, and the others take longer by what computes "
        "and what is sent alone",
        words(*best_), candidates_.size(), num_asked_, do_not_fit);
    if (runner_up_ != nullptr) plan.why.runner_up = described(*runner_up_);
    return plan;
  }

  Plan only_one() const {
    Plan plan = candidates_.front().plan;
    plan.why.binding = words(candidates_.front()) + "; nothing else can be, or was asked for";
    const std::int64_t capacity = plan.device_capacity_bytes;
    if (request_.evaluate == nullptr || capacity == 0) return plan;
    const Evaluation found = request_.evaluate->memory(plan);
    if (found.peak_bytes > capacity)
      throw_out_of_memory({fmt::format("{}, {}", plan.why.binding, gib(found.peak_bytes))});
    plan.why.predicted_peak_bytes = found.peak_bytes;
    return plan;
  }

  [[noreturn]] void throw_out_of_memory(const std::vector<std::string>& needs) const {
    const std::int64_t capacity = request_.base.device_capacity_bytes;
    throw OutOfMemory(fmt::format("{} on {} ranks: nothing fits into a device memory of {} ({} bytes): {}",
                                  request_.base.strategy, num_ranks(), gib(capacity), capacity,
                                  fmt::join(needs, "; ")));
  }

  /// Nothing fits, or nothing lowers.
  [[noreturn]] void refuse_memory() {
    std::erase_if(candidates_, [](const PricedDegrees& c) { return c.found.peak_bytes == 0; });
    if (candidates_.empty()) refuse_all();
    constexpr std::size_t enough = 8;
    std::ranges::stable_sort(candidates_, {}, [](const PricedDegrees& c) { return c.found.peak_bytes; });
    std::vector<std::string> needs;
    for (const PricedDegrees& c : candidates_) {
      if (needs.size() < enough) needs.push_back(fmt::format("{} needs {}", words(c), gib(c.found.peak_bytes)));
    }
    if (candidates_.size() > enough) needs.push_back(fmt::format("{} others more", candidates_.size() - enough));
    throw_out_of_memory(needs);
  }

  const PlanRequest& request_;
  std::vector<PricedDegrees> candidates_;
  std::string why_refused_;
  int num_asked_ = 0;
  const PricedDegrees *best_ = nullptr, *runner_up_ = nullptr;
};

}  // namespace

Plan fastest_degrees(const PlanRequest& request) { return DegreeSearch(request).best(); }

}  // namespace strata
