#include "planners/joint/joint_search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/infinity.hpp"
#include "planners/even_micro_batches.hpp"
#include "planners/joint/dimension.hpp"
#include "planners/joint/explanation.hpp"
#include "planners/joint/known_plans.hpp"
#include "planners/joint/moves.hpp"
#include "planners/joint/plan_in_words.hpp"
#include "planners/joint/single_plans.hpp"
#include "planners/pipelines/step_bound.hpp"

namespace strata {
namespace {

/// A combination of degrees, whose plan has all else as the experiment asks.
struct Combination {
  ParallelDegrees degrees;
  Plan plan;
  double seconds = 0.0;         ///< that a step takes at least with these degrees and nothing in sub-batches
  double kernel_seconds = 0.0;  ///< that its kernels take alone
};

class JointSearch {
 public:
  explicit JointSearch(const PlanRequest& request)
      : request_(request), dimensions_(request.option<std::string>("without")), known_(request) {
    refuse_uneven_micro_batches(request.base);
  }

  Plan run() {
    const bool simulates = request_.evaluate != nullptr && request_.evaluate->knows_seconds();
    if (!simulates) return only_choice();
    if (request_.option<bool>("seeds") || request_.base.global_batch == 0) add_single_plans();
    find_combinations();
    add_combinations();
    std::vector<const KnownPlan*> starts = best_of_different_degrees();
    if (starts.empty()) refuse_all();
    for (const KnownPlan* start : starts) improve(start);
    const KnownPlan& best = *best_;
    if (!best.fits()) refuse_memory(best);
    return explained(best);
  }

 private:
  bool chooses_micro_batches() const { return request_.option<std::string>("micro_batches") == planner_word; }

  /// On one rank without a limit there is nothing to compare.
  Plan only_choice() const {
    const Plan& base = request_.base;
    if (base.mesh.num_ranks() == 1 && base.device_capacity_bytes == 0 && base.global_batch > 0) {
      Plan plan = base;
      plan.mesh.axes = {{"data", 1}};
      plan.why.binding = "nothing: one rank, and no limit of its memory";
      return plan;
    }
    const std::string& cluster = request_.cluster.name;
    throw CostsUnknown(fmt::format(
        "{} on {} ranks: plans are compared by what their Programs take, and nobody knows what kernels and collectives "
        "take on cluster {}: name a described one, or have a profile",
        base.strategy, base.mesh.num_ranks(), cluster.empty() ? "(unnamed)" : cluster));
  }

  const KnownPlan* ask(Plan plan) {
    std::optional<Plan> inside = dimensions_.within(std::move(plan), request_.base);
    if (!inside) return nullptr;
    const KnownPlan& known = known_.ask(*std::move(inside));
    if (best_ == nullptr || is_better(known, *best_)) best_ = &known;
    return &known;
  }

  void add_single_plans() {
    singles_ = single_plans(request_, request_.option<std::int64_t>("staleness") == 1, chooses_micro_batches());
    for (const SinglePlan& single : singles_) {
      answers_of_singles_.push_back(single.plan ? ask(*single.plan) : nullptr);
    }
  }

  /// That the batch allows, which where it is open is the best one so far.
  void find_combinations() {
    PlanRequest asked = request_;
    if (asked.base.global_batch == 0) {
      if (best_ == nullptr) return;
      asked.base.global_batch = best_->plan.global_batch;
    }
    if (dimensions_.has(Dimension::recompute)) asked.base.recompute = Recompute::none;
    StepBounds bounds(asked, GradientSums::unknown);
    for (const ParallelDegrees& degrees : asked_degrees(asked)) {
      all_degrees_.push_back(degrees);
      if (!dimensions_.has(Dimension::stages) && degrees.stages() > 1) continue;
      if (!dimensions_.has(Dimension::tensor) && degrees.tensor > 1) continue;
      try {
        Combination c{.degrees = degrees, .plan = plan_of_degrees(asked, degrees)};
        c.seconds = bounds.seconds(degrees, c.plan);
        c.kernel_seconds = bounds.kernel_seconds(degrees, c.plan);
        combinations_.push_back(std::move(c));
      } catch (const Unsupported& refusal) {
        refused(refusal.what());
      } catch (const UserError& refusal) {
        refused(refusal.what());
      }
    }
    std::ranges::stable_sort(combinations_, {}, &Combination::seconds);
  }

  void refused(const std::string& why) {
    if (why_refused_.empty()) why_refused_ = why;
  }

  /// Until so many combinations were made into plans that fit, or nothing fits and all were.
  void add_combinations() {
    const auto most = request_.option<std::int64_t>("points"), beam = request_.option<std::int64_t>("beam");
    std::set<std::pair<int, int>> laid_out;  // places and chunks that modes with layouts of their own were asked for
    std::int64_t num_fitting = 0;
    for (const Combination& c : combinations_) {
      if (num_fitting == most) break;
      if (best_ != nullptr && best_->fits() && c.kernel_seconds >= best_->found.step_seconds) continue;
      const KnownPlan* plain = ask(c.plan);
      bool fits = plain != nullptr && best_of_states_and_recompute(plain)->fits();
      fits |= add(c, find_planner("3d+osdp"),
                  {{"tensor", std::int64_t{c.degrees.tensor}}, {"sum", std::string(to_string(c.degrees.sum))}});
      const bool is_laid_out = dimensions_.has(Dimension::tensor) && std::ssize(laid_out) < beam;
      if (is_laid_out && laid_out.insert({c.degrees.places, c.degrees.chunks}).second) {
        const std::string schedule = c.degrees.chunks > 1 ? "interleaved" : "1f1b";
        for (const char* mode : {"autoddl", "oases"}) fits |= add(c, find_planner(mode), {{"schedule", schedule}});
      }
      num_fitting += fits ? 1 : 0;
    }
  }

  /// What @p mode makes of the degrees of @p c, with and without recomputation. @return something fits.
  bool add(const Combination& c, const Planner& mode, std::map<std::string, OptionValue> options) {
    options.insert({{"stages", std::int64_t{c.degrees.stages()}}, {"chunks", std::int64_t{c.degrees.chunks}}});
    PlanRequest asked = request_;
    asked.base.global_batch = c.plan.global_batch;
    asked.base.schedule.micro_batches = c.degrees.micro_batches;
    std::vector<Recompute> kinds = {request_.base.recompute};
    if (dimensions_.has(Dimension::recompute)) kinds = {Recompute::none, Recompute::block};
    for (const Recompute kind : kinds) {
      asked.base.recompute = kind;
      SinglePlan made = plan_of_mode(asked, mode, options, false);
      if (!made.plan) {
        refused(made.refusal);
        continue;
      }
      const KnownPlan* known = ask(*std::move(made.plan));
      if (known != nullptr && known->fits()) return true;
    }
    return false;
  }

  /// The best plan of each of as many combinations of degrees as are asked for.
  std::vector<const KnownPlan*> best_of_different_degrees() const {
    std::vector<const KnownPlan*> order;
    for (const KnownPlan& known : known_.all()) {
      if (known.is_possible()) order.push_back(&known);
    }
    std::ranges::stable_sort(order, [](const KnownPlan* a, const KnownPlan* b) { return is_better(*a, *b); });
    std::set<std::string> degrees;
    std::vector<const KnownPlan*> starts;
    for (const KnownPlan* known : order) {
      if (std::ssize(starts) == request_.option<std::int64_t>("beam")) break;
      if (degrees.insert(degrees_of_plan_in_words(known->plan)).second) starts.push_back(known);
    }
    return starts;
  }

  /// Both trade time for memory, so that neither alone may be of use where only both together fit.
  const KnownPlan* best_of_states_and_recompute(const KnownPlan* from) {
    if (request_.base.device_capacity_bytes == 0 || !dimensions_.has(Dimension::states) ||
        !dimensions_.has(Dimension::recompute)) {
      return from;
    }
    const KnownPlan* best = from;
    for (const Move& again : moves_of_recompute(request_, from->plan)) {
      for (Move& held : moves_of_all_states(request_, again.plan)) {
        const KnownPlan* known = ask(std::move(held.plan));
        if (known != nullptr && is_better(*known, *best)) best = known;
      }
    }
    return best;
  }

  /// One decision after another, as long as one is better.
  void improve(const KnownPlan* from) {
    for (bool is_improved = true; is_improved;) {
      is_improved = false;
      for (const Dimension dimension : all_dimensions) {
        if (!dimensions_.has(dimension)) continue;
        const KnownPlan* best = from;
        for (const Move& move : moves_of(dimension, request_, from->plan, all_degrees_)) {
          const KnownPlan* known = ask(move.plan);
          if (known != nullptr && is_better(*known, *best)) best = known;
        }
        is_improved = is_improved || best != from;
        from = best;
      }
    }
  }

  [[noreturn]] void refuse_all() const {
    throw Unsupported(fmt::format("{} on {} ranks: no plan of the space can be lowered{}: {}", request_.base.strategy,
                                  request_.base.mesh.num_ranks(),
                                  request_.option<std::string>("without") == "none"
                                      ? ""
                                      : fmt::format(" with without = \"{}\"", request_.option<std::string>("without")),
                                  why_refused_));
  }

  [[noreturn]] void refuse_memory(const KnownPlan& least) const {
    throw OutOfMemory(least_plan_in_words(request_, least, known_));
  }

  Plan explained(const KnownPlan& best) {
    JointAnswer answer{.request = request_, .best = best, .known = known_};
    for (const Dimension dimension : all_dimensions) {
      if (dimensions_.has(dimension)) answer.moves.emplace_back(dimension, asked_moves(dimension, best.plan));
    }
    for (std::size_t s = 0; s < singles_.size(); ++s) {
      answer.singles.push_back({singles_[s].mode, answers_of_singles_[s], singles_[s].refusal});
    }
    answer.num_combinations = static_cast<int>(combinations_.size());
    for (const Combination& c : combinations_) {
      answer.kernel_seconds = std::min(answer.kernel_seconds, c.kernel_seconds);
    }
    return with_explanation(answer);
  }

  std::vector<AskedMove> asked_moves(Dimension dimension, const Plan& plan) {
    std::vector<AskedMove> asked;
    for (Move& move : moves_of(dimension, request_, plan, all_degrees_)) {
      const KnownPlan* known = ask(std::move(move.plan));
      if (known != nullptr) asked.push_back({std::move(move.words), known});
    }
    return asked;
  }

  const PlanRequest& request_;
  Dimensions dimensions_;
  KnownPlans known_;
  const KnownPlan* best_ = nullptr;
  std::vector<SinglePlan> singles_;
  std::vector<const KnownPlan*> answers_of_singles_;  ///< null: outside of the space, or refused
  std::vector<ParallelDegrees> all_degrees_;
  std::vector<Combination> combinations_;
  std::string why_refused_;
};

}  // namespace

Plan best_joint_plan(const PlanRequest& request) { return JointSearch(request).run(); }

}  // namespace strata
