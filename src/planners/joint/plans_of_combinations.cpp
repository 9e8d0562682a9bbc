#include "planners/joint/plans_of_combinations.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "base/at_once.hpp"
#include "planners/joint/degree_moves.hpp"
#include "planners/joint/moves.hpp"
#include "planners/joint/single_plans.hpp"
#include "planners/joint/starts.hpp"
#include "planners/joint/ways_to_hold.hpp"

namespace strata {
namespace {

/// A mode that makes a plan of a combination of degrees, and its options but for stages and chunks.
struct Engine {
  std::string_view mode;
  std::map<std::string, OptionValue> options{};
  bool has_stages = true;  ///< it takes these options
};

bool is_data_alone(const ParallelDegrees& degrees) { return degrees.stages() == 1 && degrees.tensor == 1; }

ParallelDegrees but_for_chunks(ParallelDegrees degrees) {
  degrees.chunks = 0;
  return degrees;
}

class PlansOfCombinations {
 public:
  PlansOfCombinations(const PlanRequest& request, const Dimensions& dimensions, const Combinations& combinations,
                      KnownPlans& known)
      : request_(request), dimensions_(dimensions), combinations_(combinations), known_(known) {}

  /// Until so many combinations were made into plans that fit, or nothing fits and all were; without stages, where
  /// there are few, until one of each tensor degree fits, and data parallelism alone in any case; and the fastest of
  /// those whose operators are all alike: of stages that differ much the bound is loose, and says little of what comes
  /// first.
  void ask() {
    const auto most = request_.option<std::int64_t>("points");
    std::set<const Combination*> looked_at;
    std::set<int> fitting;  // tensor degrees without stages
    std::int64_t num_fitting = 0;
    for (const Combination& c : combinations_.in_order()) {
      const bool is_open = c.degrees.places == 1 && !fitting.contains(c.degrees.tensor);
      if (num_fitting >= most && !is_open && !is_data_alone(c.degrees)) continue;
      if (cannot_be_best(c) || is_hopeless(c) || another_stands_for(c)) continue;
      looked_at.insert(&c);
      if (!look_at_and_note(c, num_fitting < most)) continue;
      ++num_fitting;
      if (c.degrees.places == 1) fitting.insert(c.degrees.tensor);
    }
    if (!known_.one_fits()) look_at_too_large();
    const Combination* fastest = fastest_of_alike_operators();
    if (fastest != nullptr && !cannot_be_best(*fastest) && !looked_at.contains(fastest)) look_at(*fastest, false);
  }

  const std::string& refusal() const { return refusal_; }

 private:
  /// What fits least badly is told by what it needs, not by a bound.
  void look_at_too_large() {
    for (const Combination& c : combinations_.in_order()) {
      if (!c.is_too_large || another_stands_for(c)) continue;
      Combination asked = c;
      asked.is_too_large = false;
      look_at_and_note(asked, true);
    }
  }

  /// A combination that differs from @p c in the stages a rank alone was looked at. A deep model can be cut into dozens
  /// of numbers of them that take nearly the same: one that fits is enough. With more there is less to keep for
  /// backward, but hardly less with a few more: of what does not fit those with twice as many are the next.
  bool another_stands_for(const Combination& c) const {
    const auto looked_at = enough_chunks_.find(but_for_chunks(c.degrees));
    return c.degrees.chunks > 1 && looked_at != enough_chunks_.end() && c.degrees.chunks < looked_at->second;
  }

  bool look_at_and_note(const Combination& c, bool may_be_laid_out) {
    const bool fits = look_at(c, may_be_laid_out);
    if (c.degrees.chunks > 1) {
      int& enough = enough_chunks_[but_for_chunks(c.degrees)];
      enough = fits ? std::numeric_limits<int>::max() : std::max(enough, 2 * c.degrees.chunks);
    }
    return fits;
  }

  bool cannot_be_best(const Combination& c) const {
    return known_.one_fits() && c.kernel_seconds >= known_.best()->found.step_seconds;
  }

  /// Its sums, which rings would hide, take several times as long as all of the best plan's step.
  bool is_hopeless(const Combination& c) const {
    constexpr double times = 4.0;
    return known_.one_fits() && c.seconds >= times * known_.best()->found.step_seconds;
  }

  /// The best of these ways takes so much longer than the best plan that it is no use to ask modes which decide states
  /// operator by operator: of 20 combinations of OSDP's models they gained 9 % at most over it.
  bool is_far_behind(const WaysToHold& held) const {
    constexpr double times = 1.5;
    return known_.one_fits() && held.fit && held.seconds > times * known_.best()->found.step_seconds;
  }

  /// What `3d` finds; null: nothing fits, or it is none of the combinations.
  const Combination* fastest_of_alike_operators() {
    PlanRequest asked = request_;
    asked.base.global_batch = combinations_.global_batch();
    std::map<std::string, OptionValue> options;
    for (const OptionRow& row : degree_options()) options.emplace(row.name, request_.options.at(std::string(row.name)));
    SinglePlan found = plan_of_mode(asked, find_planner("3d"), std::move(options), false);
    if (!found.plan) return nullptr;
    const ParallelDegrees degrees = degrees_of(*found.plan);
    known_.ask(*std::move(found.plan));
    const auto same = std::ranges::find(combinations_.in_order(), degrees, &Combination::degrees);
    return same == combinations_.in_order().end() ? nullptr : &*same;
  }

  WaysToHold ways_to_hold_of(const Plan& plain) { return ways_to_hold(request_, dimensions_, known_, plain); }

  /// @param may_be_laid_out: of a few pipelines layouts of layers are searched, of the first that come. @return a plan
  /// of these degrees fits.
  bool look_at(const Combination& c, bool may_be_laid_out) {
    const WaysToHold held =
        c.is_too_large ? WaysToHold{.need_recompute = trades_time_for_memory(dimensions_)} : ways_to_hold_of(c.plan);
    std::vector<Engine> engines;
    if (!c.is_too_large && !is_far_behind(held)) {
      engines.push_back(
          {"3d+osdp", {{"tensor", std::int64_t{c.degrees.tensor}}, {"sum", std::string(to_string(c.degrees.sum))}}});
      if (is_data_alone(c.degrees) && dimensions_.has(Dimension::states))
        engines.push_back({.mode = "amsp", .has_stages = false});
    }
    const bool is_laid_out = dimensions_.has(Dimension::tensor) && may_be_laid_out &&
                             std::ssize(laid_out_) < request_.option<std::int64_t>("beam");
    if (is_laid_out && laid_out_.insert({c.degrees.places, c.degrees.chunks}).second) {
      const std::string schedule = c.degrees.chunks > 1 ? "interleaved" : "1f1b";
      for (const char* mode : {"autoddl", "oases"}) engines.push_back({mode, {{"schedule", schedule}}});
      // In stages the Programs of these take seconds each to simulate, and are not looked at.
      if (c.degrees.places == 1) engines.insert(engines.end(), {{"merak", {}}, {"decomposed", {}}, {"summa", {}}});
    }
    const bool one_fits = ask_engines(c, std::move(engines), held.need_recompute);
    // Over slow links sums take longer than what they are sums of, unless they go round beside it. In stages as above.
    const bool goes_round = c.degrees.places == 1 && has_layouts(c.plan.mesh) && !c.is_too_large &&
                            ways_to_hold_of(on_rings(request_, c.plan)).fit;
    return held.fit || one_fits || goes_round;
  }

  /// For plans of the degrees of @p c by @p engines, and where these do not fit with recomputation. @return one fits.
  bool ask_engines(const Combination& c, std::vector<Engine> engines, bool needs_recompute) {
    std::vector<Recompute> kinds = {request_.base.recompute};
    if (dimensions_.has(Dimension::recompute)) kinds = {Recompute::none, Recompute::block};
    if (needs_recompute) kinds = {Recompute::block};
    PlanRequest asked = request_;
    asked.base.global_batch = c.plan.global_batch;
    asked.base.schedule.micro_batches = c.degrees.micro_batches;
    if (known_.one_fits()) asked.most_seconds = far_where_memory_is_short * known_.best()->found.step_seconds;
    bool one_fits = false;
    for (const Recompute kind : kinds) {
      asked.base.recompute = kind;
      std::vector<SinglePlan> made = plans_by(engines, asked, c.degrees);
      std::vector<Engine> without_fit;
      for (std::size_t e = 0; e < engines.size(); ++e) {
        const KnownPlan* answer = made[e].plan ? known_.ask(*std::move(made[e].plan)) : nullptr;
        if (answer != nullptr && answer->fits()) {
          one_fits = true;
        } else {
          if (refusal_.empty()) refusal_ = made[e].refusal;
          without_fit.push_back(std::move(engines[e]));
        }
      }
      engines = std::move(without_fit);
    }
    return one_fits;
  }

  static std::vector<SinglePlan> plans_by(const std::vector<Engine>& engines, const PlanRequest& asked,
                                          const ParallelDegrees& degrees) {
    std::vector<SinglePlan> made(engines.size());
    at_once(engines.size(), static_cast<std::size_t>(asked.num_threads), [&](std::size_t e) {
      std::map<std::string, OptionValue> options = engines[e].options;
      if (engines[e].has_stages) {
        options.insert({{"stages", std::int64_t{degrees.stages()}}, {"chunks", std::int64_t{degrees.chunks}}});
      }
      made[e] = plan_of_mode(asked, find_planner(engines[e].mode), std::move(options), false);
    });
    return made;
  }

  const PlanRequest& request_;
  const Dimensions& dimensions_;
  const Combinations& combinations_;
  KnownPlans& known_;
  std::map<ParallelDegrees, int> enough_chunks_;  ///< but for chunks: with fewer there is nothing more to look at
  std::set<std::pair<int, int>> laid_out_;  ///< places and chunks that modes with layouts of their own were asked for
  std::string refusal_;                     ///< the first one
};

}  // namespace

std::string ask_for_combinations(const PlanRequest& request, const Dimensions& dimensions,
                                 const Combinations& combinations, KnownPlans& known) {
  PlansOfCombinations plans(request, dimensions, combinations, known);
  plans.ask();
  return plans.refusal();
}

}  // namespace strata
