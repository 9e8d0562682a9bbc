#include "planners/joint/joint_search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <ranges>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/at_once.hpp"
#include "base/error.hpp"
#include "base/infinity.hpp"
#include "planners/evaluate.hpp"
#include "planners/even_micro_batches.hpp"
#include "planners/joint/by_few_parts.hpp"
#include "planners/joint/degree_moves.hpp"
#include "planners/joint/dimension.hpp"
#include "planners/joint/explanation.hpp"
#include "planners/joint/known_plans.hpp"
#include "planners/joint/moves.hpp"
#include "planners/joint/plan_in_words.hpp"
#include "planners/joint/relief.hpp"
#include "planners/joint/single_plans.hpp"
#include "planners/pipelines/step_bound.hpp"

namespace strata {
namespace {

/// Times the best plan's seconds that a plan may take for decisions to be tried from it where memory is short.
constexpr double far_where_memory_is_short = 1.75;

/// A combination of degrees, whose plan has all else as the experiment asks.
struct Combination {
  ParallelDegrees degrees;
  Plan plan;
  double seconds = 0.0;         ///< that a step takes at least with these degrees and nothing in sub-batches
  double kernel_seconds = 0.0;  ///< that its kernels take alone
  bool is_too_large = false;    ///< however its states are held and whatever runs again
};

class JointSearch {
 public:
  explicit JointSearch(const PlanRequest& request)
      : request_(request), with_batch_(request), dimensions_(request.option<std::string>("without")), known_(request) {
    refuse_uneven_micro_batches(request.base);
  }

  Plan run() {
    const bool simulates = request_.evaluate != nullptr && request_.evaluate->knows_seconds();
    if (!simulates) return only_choice();
    const bool is_batch_open = request_.base.global_batch == 0;
    if (is_batch_open) add_single_plans();  // One of them chooses it.
    find_combinations();
    add_combinations();
    improve_first(all_known());
    if (request_.option<bool>("seeds") && !is_batch_open) {
      without_candidates_ =
          best_ != nullptr && best_->fits() ? fmt::format("{:.6g} s", best_->found.step_seconds) : "nothing fits";
      add_single_plans();
      improve_first(candidates());
    }
    if (best_ == nullptr || !best_->is_possible()) refuse_all();
    if (!best_->fits()) refuse_memory(*best_);
    return explained();
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

  /// By plan; null where it lies outside of the space.
  std::vector<const KnownPlan*> ask(std::vector<Plan> plans) {
    std::vector<Plan> inside;
    std::vector<std::optional<std::size_t>> place_inside;
    for (Plan& plan : plans) {
      std::optional<Plan> changed = dimensions_.within(std::move(plan), request_.base);
      place_inside.push_back(changed ? std::optional(inside.size()) : std::nullopt);
      if (changed) inside.push_back(*std::move(changed));
    }
    const std::vector<const KnownPlan*> found = known_.ask(std::move(inside));
    std::vector<const KnownPlan*> answers;
    for (const std::optional<std::size_t>& place : place_inside) {
      const KnownPlan* known = answers.emplace_back(place ? found[*place] : nullptr);
      if (known != nullptr && (best_ == nullptr || is_better(*known, *best_))) best_ = known;
    }
    return answers;
  }

  const KnownPlan* ask(Plan plan) {
    std::vector<Plan> one;
    one.push_back(std::move(plan));
    return ask(std::move(one)).front();
  }

  void add_single_plans() {
    singles_ = single_plans(request_, request_.option<std::int64_t>("staleness") == 1, chooses_micro_batches());
    std::vector<Plan> plans;
    for (const SinglePlan& single : singles_) {
      if (single.plan) plans.push_back(*single.plan);
    }
    const std::vector<const KnownPlan*> answers = ask(std::move(plans));
    std::size_t next = 0;
    for (const SinglePlan& single : singles_) answers_of_singles_.push_back(single.plan ? answers[next++] : nullptr);
  }

  /// That the batch allows, which where it is open is the best one so far.
  void find_combinations() {
    PlanRequest& asked = with_batch_;
    if (asked.base.global_batch == 0) {
      if (best_ == nullptr) return;
      asked.base.global_batch = best_->plan.global_batch;
    }
    if (dimensions_.has(Dimension::recompute)) asked.base.recompute = Recompute::none;
    StepBounds& bounds = bounds_.emplace(asked, HeldStates::any);
    PlanRequest smallest = asked;
    if (dimensions_.has(Dimension::recompute)) smallest.base.recompute = Recompute::block;
    StepBounds memory_bounds(smallest, HeldStates::any);
    const std::int64_t capacity = asked.base.device_capacity_bytes;
    for (const ParallelDegrees& degrees : asked_degrees(asked)) {
      all_degrees_.push_back(degrees);
      if (!dimensions_.has(Dimension::stages) && degrees.stages() > 1) continue;
      if (!dimensions_.has(Dimension::tensor) && degrees.tensor > 1) continue;
      try {
        Combination c{.degrees = degrees, .plan = plan_of_degrees(asked, degrees)};
        c.seconds = bounds.seconds(degrees, c.plan);
        c.kernel_seconds = bounds.kernel_seconds(degrees, c.plan);
        c.is_too_large = capacity > 0 && memory_bounds.bytes(degrees, c.plan) > capacity;
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

  /// Until so many combinations were made into plans that fit, or nothing fits and all were; without stages, where
  /// there are few, until one of each tensor degree fits, and data parallelism alone in any case; and the fastest of
  /// those whose operators are all alike: of stages that differ much the bound is loose, and says little of what comes
  /// first.
  void add_combinations() {
    const auto most = request_.option<std::int64_t>("points");
    std::set<const Combination*> looked_at;
    std::set<int> fitting;  // tensor degrees without stages
    std::int64_t num_fitting = 0;
    for (const Combination& c : combinations_) {
      const bool is_open = c.degrees.places == 1 && !fitting.contains(c.degrees.tensor);
      if (num_fitting >= most && !is_open && !is_data_alone(c.degrees)) continue;
      if (cannot_be_best(c) || is_hopeless(c) || stands_for_it(c)) continue;
      looked_at.insert(&c);
      if (!look_at_and_note(c, num_fitting < most)) continue;
      ++num_fitting;
      if (c.degrees.places == 1) fitting.insert(c.degrees.tensor);
    }
    if (best_ == nullptr || !best_->fits()) look_at_too_large();
    const Combination* fastest = fastest_of_alike_operators();
    if (fastest != nullptr && !cannot_be_best(*fastest) && !looked_at.contains(fastest)) look_at(*fastest, false);
  }

  /// What fits least badly is told by what it needs, not by a bound.
  void look_at_too_large() {
    for (Combination& c : combinations_) {
      if (std::exchange(c.is_too_large, false) && !stands_for_it(c)) look_at_and_note(c, true);
    }
  }

  static ParallelDegrees but_for_chunks(ParallelDegrees degrees) {
    degrees.chunks = 0;
    return degrees;
  }

  /// A combination that differs from @p c in the stages a rank alone was looked at. A deep model can be cut into dozens
  /// of numbers of them that take nearly the same: one that fits is enough. With more there is less to keep for
  /// backward, but hardly less with a few more: of what does not fit those with twice as many are the next.
  bool stands_for_it(const Combination& c) const {
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
    return best_ != nullptr && best_->fits() && c.kernel_seconds >= best_->found.step_seconds;
  }

  /// Its sums, which rings would hide, take several times as long as all of the best plan's step.
  bool is_hopeless(const Combination& c) const {
    constexpr double times = 4.0;
    return best_ != nullptr && best_->fits() && c.seconds >= times * best_->found.step_seconds;
  }

  static bool is_data_alone(const ParallelDegrees& degrees) { return degrees.stages() == 1 && degrees.tensor == 1; }

  /// What `3d` finds; null: nothing fits, or it is none of the combinations.
  const Combination* fastest_of_alike_operators() {
    PlanRequest asked = request_;
    if (asked.base.global_batch == 0) asked.base.global_batch = with_batch_.base.global_batch;
    std::map<std::string, OptionValue> options;
    for (const OptionRow& row : degree_options()) options.emplace(row.name, request_.options.at(std::string(row.name)));
    SinglePlan found = plan_of_mode(asked, find_planner("3d"), std::move(options), false);
    if (!found.plan) return nullptr;
    const ParallelDegrees degrees = degrees_of(*found.plan);
    ask(*std::move(found.plan));
    const auto same = std::ranges::find(combinations_, degrees, &Combination::degrees);
    return same == combinations_.end() ? nullptr : &*same;
  }

  /// @param may_be_laid_out: of a few pipelines layouts of layers are searched, of the first that come. @return a plan
  /// of these degrees fits.
  bool look_at(const Combination& c, bool may_be_laid_out) {
    const WaysToHold held =
        c.is_too_large ? WaysToHold{.need_recompute = trades_time_for_memory()} : ways_to_hold(c.plan);
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
    const bool one_fits = add(c, std::move(engines), held.need_recompute);
    // Over slow links sums take longer than what they are sums of, unless they go round beside it. In stages as above.
    const bool goes_round = c.degrees.places == 1 && has_layouts(c.plan.mesh) && !c.is_too_large &&
                            ways_to_hold(on_rings(request_, c.plan)).fit;
    return held.fit || one_fits || goes_round;
  }

  /// A mode that makes a plan of a combination of degrees, and its options but for stages and chunks.
  struct Engine {
    std::string_view mode;
    std::map<std::string, OptionValue> options{};
    bool has_stages = true;  ///< it takes these options
  };

  /// What @p engines make of the degrees of @p c, where that does not fit with recomputation. @return something fits.
  bool add(const Combination& c, std::vector<Engine> engines, bool needs_recompute) {
    std::vector<Recompute> kinds = {request_.base.recompute};
    if (dimensions_.has(Dimension::recompute)) kinds = {Recompute::none, Recompute::block};
    if (needs_recompute) kinds = {Recompute::block};
    PlanRequest asked = request_;
    asked.base.global_batch = c.plan.global_batch;
    asked.base.schedule.micro_batches = c.degrees.micro_batches;
    if (best_ != nullptr && best_->fits()) asked.most_seconds = far_where_memory_is_short * best_->found.step_seconds;
    bool something_fits = false;
    for (const Recompute kind : kinds) {
      asked.base.recompute = kind;
      std::vector<SinglePlan> made(engines.size());
      at_once(engines.size(), static_cast<std::size_t>(request_.num_threads), [&](std::size_t e) {
        std::map<std::string, OptionValue> options = engines[e].options;
        if (engines[e].has_stages) {
          options.insert({{"stages", std::int64_t{c.degrees.stages()}}, {"chunks", std::int64_t{c.degrees.chunks}}});
        }
        made[e] = plan_of_mode(asked, find_planner(engines[e].mode), std::move(options), false);
      });
      std::vector<Engine> without_fit;
      for (std::size_t e = 0; e < engines.size(); ++e) {
        const KnownPlan* known = made[e].plan ? ask(*std::move(made[e].plan)) : nullptr;
        if (known != nullptr && known->fits()) {
          something_fits = true;
        } else {
          refused(made[e].refusal);
          without_fit.push_back(std::move(engines[e]));
        }
      }
      engines = std::move(without_fit);
    }
    return something_fits;
  }

  std::vector<const KnownPlan*> all_known() const {
    std::vector<const KnownPlan*> all;
    for (const KnownPlan& known : known_.all()) all.push_back(&known);
    return all;
  }

  std::vector<const KnownPlan*> candidates() const {
    std::vector<const KnownPlan*> inside;
    std::ranges::copy_if(answers_of_singles_, std::back_inserter(inside),
                         [](const KnownPlan* known) { return known != nullptr; });
    return inside;
  }

  /// Tries decisions from those of @p plans, and of what was looked at before, that differ most: of none twice.
  void improve_first(const std::vector<const KnownPlan*>& plans) {
    for (const KnownPlan* plan : plans) {
      if (std::ranges::find(looked_at_, plan) == looked_at_.end()) looked_at_.push_back(plan);
    }
    std::vector<const KnownPlan*> starts = best_of_different_degrees(looked_at_);
    std::erase_if(starts, [&](const KnownPlan* start) { return !improved_.insert(start).second; });
    improve(std::move(starts));
  }

  /// Where decisions are tried first: the best plan of each number of places and of tensor ranks, with layouts and
  /// without, with products on rings and without, unless it is far behind; where it is close, of each number of stages
  /// and of micro-batches. Of plans that run blocks again since memory is short, how far says little: which blocks, and
  /// what else saves as much, is not tried yet.
  std::vector<const KnownPlan*> best_of_different_degrees(std::span<const KnownPlan* const> plans) const {
    constexpr double close = 1.01, far = 1.25;  // times the best plan's seconds
    std::vector<const KnownPlan*> order;
    std::ranges::copy_if(plans, std::back_inserter(order), &KnownPlan::is_possible);
    std::ranges::stable_sort(order, [](const KnownPlan* a, const KnownPlan* b) { return is_better(*a, *b); });
    if (order.empty()) return {};
    const KnownPlan& best = *order.front();  // that no decision was tried from
    const auto beam = request_.option<std::int64_t>("beam");
    const bool one_fits = best.fits();
    const std::int64_t most = one_fits ? 2 * beam : beam;
    const double most_behind = one_fits && runs_again(best.plan) ? far_where_memory_is_short : far;
    std::vector<const KnownPlan*> starts;
    for (const KnownPlan* known : order) {
      const bool is_far = one_fits && !is_within(most_behind, *known, best);
      if (is_far || std::ssize(starts) == most) break;
      const bool is_close = one_fits && is_within(close, *known, best);
      const bool is_alike = std::ranges::any_of(starts, [&](const KnownPlan* start) {
        return has_as_many_ranks(start->plan, known->plan) &&
               (!is_close || has_as_many_passes(start->plan, known->plan));
      });
      if (!is_alike) starts.push_back(known);
    }
    return starts;
  }

  /// A stage and a tensor is cut over as many, and products go round rings in both or in neither.
  static bool has_as_many_ranks(const Plan& a, const Plan& b) {
    const auto goes_round = [](const Plan& plan) {
      return std::ranges::any_of(plan.operators,
                                 [](const OperatorRule& rule) { return rule.algorithm == MatmulAlgorithm::ring; });
    };
    const ParallelDegrees of_a = degrees_of(a), of_b = degrees_of(b);
    return of_a.places == of_b.places && of_a.tensor == of_b.tensor && has_layouts(a.mesh) == has_layouts(b.mesh) &&
           goes_round(a) == goes_round(b);
  }

  static bool has_as_many_passes(const Plan& a, const Plan& b) {
    return a.stages.count == b.stages.count && a.schedule.micro_batches == b.schedule.micro_batches;
  }

  /// It fits, and takes at most so many times as long as @p best, which fits.
  static bool is_within(double times, const KnownPlan& known, const KnownPlan& best) {
    return known.fits() && known.seconds_per_sample() <= times * best.seconds_per_sample();
  }

  bool trades_time_for_memory() const {
    return dimensions_.has(Dimension::states) && dimensions_.has(Dimension::recompute);
  }

  struct WaysToHold {
    bool fit = false;
    bool need_recompute = false;  ///< none fits without
    double seconds = infinity;    ///< of the fastest of those that were asked and fit
  };

  /// The best of these ways takes so much longer than the best plan that it is no use to ask modes which decide states
  /// operator by operator: of 20 combinations of OSDP's models they gained 9 % at most over it.
  bool is_far_behind(const WaysToHold& held) const {
    constexpr double times = 1.5;
    return best_ != nullptr && best_->fits() && held.fit && held.seconds > times * best_->found.step_seconds;
  }

  /// With every block run again, by some way of @p held to hold states: asked in turn, as mostly the last one fits.
  bool one_fits_if_all_runs_again(std::span<const Move> held) {
    for (const Recompute kind : ways_to_recompute) {
      for (const Move& way : std::views::reverse(held)) {
        const int all = static_cast<int>(request_.graph.blocks.size());
        const KnownPlan* known = ask(with_recompute(request_, way.plan, kind, all));
        if (known != nullptr && known->fits()) return true;
      }
    }
    return false;
  }

  /// Asks for @p plain, and where it does not fit for every way to hold its states with every way to recompute, of
  /// which as few blocks as make it fit: both trade time for memory, and neither alone may be enough.
  WaysToHold ways_to_hold(const Plan& plain) {
    const KnownPlan* from = ask(plain);
    if (from == nullptr) return {};
    if (from->fits()) return {.fit = true, .seconds = from->found.step_seconds};
    if (!trades_time_for_memory()) return {};
    WaysToHold ways{.need_recompute = true};
    const std::vector<Move> all_held = moves_of_all_states(request_, from->plan);
    if (!one_fits_if_all_runs_again(all_held)) return ways;
    std::vector<std::vector<Plan>> ladders;  // of one way to hold states and to recompute: none, and more and more
    for (const Move& held : all_held) {
      for (const Recompute kind : ways_to_recompute) {
        std::vector<Plan>& ladder = ladders.emplace_back();
        ladder.push_back(held.plan);
        for (Move& again : moves_to_recompute(request_, held.plan, kind)) ladder.push_back(std::move(again.plan));
      }
    }
    for (std::size_t rung = 0; !ladders.empty(); ++rung) {
      std::vector<Plan> next;
      for (const std::vector<Plan>& ladder : ladders) next.push_back(ladder[rung]);
      const std::vector<bool> fit = ask_for_fastest(std::move(next), ways.seconds);
      std::vector<std::vector<Plan>> open;
      for (std::size_t l = 0; l < ladders.size(); ++l) {
        ways.fit = ways.fit || fit[l];
        if (fit[l] && rung == 0) ways.need_recompute = false;
        if (!fit[l] && rung + 1 < ladders[l].size()) open.push_back(std::move(ladders[l]));
      }
      ladders = std::move(open);
    }
    return ways;
  }

  /// Nothing of what is known.
  ByFewParts told_of(const Plan& plan) const { return known_.has(plan) ? ByFewParts{} : by_few_parts(request_, plan); }

  /// Of @p plans, one of which is wanted: asks for those of which few parts say nothing, then for the others, until
  /// none of them may be faster than @p fastest, which becomes the seconds of the fastest that fits.
  /// @return by plan: it fits, or few of its parts say so and that it is slower.
  std::vector<bool> ask_for_fastest(std::vector<Plan> plans, double& fastest) {
    std::vector<ByFewParts> told(plans.size());
    at_once(plans.size(), static_cast<std::size_t>(request_.num_threads),
            [&](std::size_t p) { told[p] = told_of(plans[p]); });
    const auto about = [&](std::size_t p) { return told[p].about_seconds.value_or(0.0); };
    std::vector<std::size_t> fitting;
    std::vector<bool> fit(plans.size(), false);
    for (std::size_t p = 0; p < plans.size(); ++p) {
      fit[p] = told[p].least.feasible();
      if (fit[p]) fitting.push_back(p);
    }
    ask_in_order(
        std::move(plans), std::move(fitting), about, [&](std::size_t p) { return may_be_faster(about(p), fastest); },
        [&](std::size_t p, const KnownPlan* known) {
          fit[p] = known != nullptr && known->fits();
          if (fit[p]) fastest = std::min(fastest, known->found.step_seconds);
        });
    return fit;
  }

  /// Asks for those of @p plans that are in @p order, the least first: at once those of which nothing is known, then a
  /// few at a time, until @p may_be_better is false of the next one. @param least seconds, by plan; 0: nothing is
  /// known.
  /// @param answered is told of each (plan, answer), before the next are asked.
  template <typename Least, typename MayBeBetter, typename Answered>
  void ask_in_order(std::vector<Plan> plans, std::vector<std::size_t> order, const Least& least,
                    const MayBeBetter& may_be_better, const Answered& answered) {
    constexpr std::size_t at_a_time = 2;  // also on one thread: which plans are asked is told by plans alone
    std::ranges::stable_sort(order, {}, least);
    for (std::size_t next = 0; next < order.size();) {
      const std::size_t first = next;
      std::vector<Plan> together;
      while (next < order.size() && may_be_better(order[next]) &&
             (least(order[next]) == 0.0 || together.size() < at_a_time)) {
        together.push_back(std::move(plans[order[next++]]));
      }
      if (together.empty()) return;
      const std::vector<const KnownPlan*> answers = ask(std::move(together));
      for (std::size_t a = 0; a < answers.size(); ++a) answered(order[first + a], answers[a]);
    }
  }

  /// One decision after another, of all @p starts. Then again of those that are best by now, as many as are asked for
  /// and nearly as fast as the best plan of as many rounds, also from earlier starts, as long as going through all
  /// decisions once is worth it.
  void improve(std::vector<const KnownPlan*> starts) {
    constexpr double worth = 1e-3;   // of a step's seconds
    constexpr double nearly = 1.05;  // times the best plan's seconds
    for (std::size_t round = 0; !starts.empty(); ++round) {
      std::vector<const KnownPlan*> better;
      for (const KnownPlan* start : starts) {
        const KnownPlan* improved = after_all_decisions(start);
        note_best(round, *improved);
        const bool is_worth_it = start->fits()
                                     ? improved->seconds_per_sample() < (1.0 - worth) * start->seconds_per_sample()
                                     : improved != start;
        if (is_worth_it && std::ranges::find(better, improved) == better.end()) better.push_back(improved);
      }
      if (const KnownPlan& best = *best_of_rounds_[round]; best.fits()) {
        std::erase_if(better, [&](const KnownPlan* plan) { return !is_within(nearly, *plan, best); });
      }
      std::ranges::stable_sort(better, [](const KnownPlan* a, const KnownPlan* b) { return is_better(*a, *b); });
      if (const auto beam = static_cast<std::size_t>(request_.option<std::int64_t>("beam")); better.size() > beam) {
        better.resize(beam);
      }
      starts = std::move(better);
    }
  }

  void note_best(std::size_t round, const KnownPlan& plan) {
    if (round == best_of_rounds_.size()) best_of_rounds_.push_back(round == 0 ? &plan : best_of_rounds_.back());
    for (const KnownPlan*& best : best_of_rounds_ | std::views::drop(round)) {
      if (is_better(plan, *best)) best = &plan;
    }
  }

  /// The best plan that one decision of each dimension in turn, or none, leads to from @p from.
  const KnownPlan* after_all_decisions(const KnownPlan* from) {
    for (const Dimension dimension : all_dimensions) {
      if (!dimensions_.has(dimension)) continue;
      const KnownPlan* best = from;
      for (const AskedMove& move : asked_moves(dimension, *from, LeftOutBy::estimates)) {
        if (!move.is_left_out() && is_better(*move.known, *best)) best = move.known;
      }
      from = best;
    }
    return from;
  }

  /// What says of moves that are not asked that they are no better.
  enum class LeftOutBy : std::uint8_t {
    bounds,    ///< never more than they take or need
    estimates  ///< quicker or closer, and off by a little
  };

  /// Of @p from, those that may be noticeably better than it; of the others what is known.
  std::vector<AskedMove> asked_moves(Dimension dimension, const KnownPlan& from, LeftOutBy left_out_by) {
    std::vector<AskedMove> asked;
    std::vector<Plan> plans;
    for (Move& move : moves_of(dimension, request_, from.plan, all_degrees_)) {
      if (from.fits() && move.saves_only_memory) continue;
      std::optional<Plan> inside = dimensions_.within(std::move(move.plan), request_.base);
      if (!inside) continue;
      Plan plan = known_.comparable(*std::move(inside));
      if (plan == from.plan) continue;
      asked.push_back({.words = std::move(move.words)});
      plans.push_back(std::move(plan));
    }
    if (!from.fits()) {
      ask_least_first(std::move(plans), infinity, 0.0, asked);
      return asked;
    }
    const double seconds = from.found.step_seconds;
    const About about = left_out_by == LeftOutBy::estimates ? about_plan(from) : About{};
    add_bounds(plans, seconds, about, asked);
    ask_least_first(std::move(plans), seconds, about.uncertain, asked);
    return asked;
  }

  /// What is quickly told of a plan that was simulated. Much of what that is off by it is off by for moves of the plan
  /// too.
  struct About {
    std::optional<double> of_few{}, of_even_vocabulary{};  ///< seconds
    double uncertain = 0.0;  ///< part of a step's seconds, by which moves may be faster than this tells
  };

  About about_plan(const KnownPlan& from) const {
    const Evaluate& evaluate = *request_.evaluate;
    // A token more or less in the head of one rank, where other tensor ranks share the vocabulary.
    constexpr double uncertain_by_tokens = 1e-4;
    if (const std::optional<double> of_all_tokens = evaluate.seconds_of_few(from.plan, Tokens::all)) {
      return {.of_few = evaluate.seconds_of_few(from.plan, Tokens::that_divide),
              .uncertain = uncertainty_by_few_parts(*of_all_tokens, from.found.step_seconds)};
    }
    if (from.plan.stages.count == 1) return {};
    const std::optional<Evaluation> even = evaluate.at_least(from.plan);
    if (!even) return {};
    return {.of_even_vocabulary = even->step_seconds, .uncertain = uncertain_by_tokens};
  }

  /// What @p plans take and need at least, moves of a plan that takes @p seconds and fits, and what they take about as
  /// far as @p about_from tells it of that plan; nothing of those that are known, or asked as quickly. How much those
  /// need that take no less by their passes alone is not asked.
  void add_bounds(const std::vector<Plan>& plans, double seconds, const About& about_from,
                  std::vector<AskedMove>& asked) {
    at_once(plans.size(), static_cast<std::size_t>(request_.num_threads), [&](std::size_t m) {
      if (known_.has(plans[m])) return;
      Evaluation& bound = asked[m].at_least;
      bound.step_seconds = least_seconds_of_passes(plans[m]);
      if (bound.step_seconds >= seconds) return;
      ByFewParts told = about_from.of_few ? told_of(plans[m]) : ByFewParts{};
      if (told.about_seconds || !told.least.feasible()) {
        told.least.step_seconds = bound.step_seconds;
        bound = std::move(told.least);
        if (told.about_seconds) asked[m].about_seconds = *told.about_seconds * seconds / *about_from.of_few;
        return;
      }
      std::optional<Evaluation> closer = request_.evaluate->at_least(plans[m]);
      if (!closer) return;
      if (about_from.of_even_vocabulary && plans[m].stages.count > 1) {
        asked[m].about_seconds = closer->step_seconds * seconds / *about_from.of_even_vocabulary;
      }
      closer->step_seconds = std::max(closer->step_seconds, bound.step_seconds);
      bound = *std::move(closer);
    });
  }

  /// Those whose bound says nothing at once, then the others by their bound, until none may be noticeably better than
  /// the best so far. @param seconds of the plan that they are moves of. @param uncertain part of what they take about.
  void ask_least_first(std::vector<Plan> plans, double seconds, double uncertain, std::vector<AskedMove>& asked) {
    constexpr double not_noticeable = 1e-5;  // of a step's seconds
    constexpr double rounding = 1e-7;        // of sums of few parts and of all
    double best = seconds;
    const auto least = [&](std::size_t m) {
      return std::max(asked[m].at_least.step_seconds, asked[m].about_seconds.value_or(0.0));
    };
    const auto may_be_noticeably_better = [&](std::size_t m) {
      return std::max(asked[m].at_least.step_seconds, (1.0 - uncertain) * asked[m].about_seconds.value_or(0.0)) <
             (1.0 - not_noticeable) * best;
    };
    const auto changes_nothing = [&](const AskedMove& move) {
      return move.about_seconds && std::abs(*move.about_seconds - seconds) <= rounding * seconds;
    };
    std::vector<std::size_t> fitting;  // as far as bounds say
    for (std::size_t m = 0; m < plans.size(); ++m) {
      if (asked[m].at_least.feasible() && !changes_nothing(asked[m])) fitting.push_back(m);
    }
    ask_in_order(std::move(plans), std::move(fitting), least, may_be_noticeably_better,
                 [&](std::size_t m, const KnownPlan* known) {
                   asked[m].known = known;
                   if (known->fits()) best = std::min(best, known->found.step_seconds);
                 });
  }

  double least_seconds_of_passes(const Plan& plan) {
    if (!bounds_) return 0.0;
    try {
      return bounds_->seconds_of_alike_blocks(degrees_of(plan), plan);
    } catch (const Unsupported&) {
      return 0.0;  // It is asked, and says so.
    } catch (const UserError&) {
      return 0.0;
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
    const std::string relief = relief_in_words(request_, dimensions_, all_degrees_, least);
    throw OutOfMemory(least_plan_in_words(request_, least, known_) + (relief.empty() ? "" : "; " + relief));
  }

  using MovesByDimension = std::vector<std::pair<Dimension, std::vector<AskedMove>>>;

  MovesByDimension moves_of_all_dimensions(const KnownPlan& from) {
    MovesByDimension moves;
    for (const Dimension dimension : all_dimensions) {
      if (dimensions_.has(dimension)) moves.emplace_back(dimension, asked_moves(dimension, from, LeftOutBy::bounds));
    }
    return moves;
  }

  /// For the frontier: what holds less and takes longer is left out by its bound elsewhere.
  void add_ways_to_hold(const KnownPlan& from) {
    if (!dimensions_.has(Dimension::states)) return;
    std::vector<Plan> plans;
    for (Move& held : moves_of_all_states(request_, from.plan)) plans.push_back(std::move(held.plan));
    ask(std::move(plans));
  }

  /// The best plan beside what its next decisions would cost, none of which is noticeably better.
  Plan explained() {
    const KnownPlan* best = nullptr;
    MovesByDimension moves;
    while (best != best_) {
      best = best_;
      add_ways_to_hold(*best);
      moves = moves_of_all_dimensions(*best);
    }
    JointAnswer answer{.request = request_,
                       .best = *best,
                       .known = known_,
                       .moves = std::move(moves),
                       .without_candidates = without_candidates_};
    for (std::size_t s = 0; s < singles_.size(); ++s) {
      answer.singles.push_back({singles_[s].mode, answers_of_singles_[s], singles_[s].refusal});
    }
    answer.num_combinations = static_cast<int>(combinations_.size());
    for (const Combination& c : combinations_) {
      answer.kernel_seconds = std::min(answer.kernel_seconds, c.kernel_seconds);
    }
    return with_explanation(answer);
  }

  const PlanRequest& request_;
  PlanRequest with_batch_;            ///< the batch that was found, where it was open; nothing runs again unless asked
  std::optional<StepBounds> bounds_;  ///< of with_batch_
  Dimensions dimensions_;
  KnownPlans known_;
  const KnownPlan* best_ = nullptr;
  std::vector<const KnownPlan*> looked_at_;       ///< before any decision was tried
  std::set<const KnownPlan*> improved_;           ///< of these, those from which decisions were tried first
  std::vector<const KnownPlan*> best_of_rounds_;  ///< the best that so many rounds of decisions have led to, or fewer
  std::string without_candidates_;                ///< what a step takes then; empty: not looked at
  std::vector<SinglePlan> singles_;
  std::vector<const KnownPlan*> answers_of_singles_;  ///< null: outside of the space, or refused
  std::vector<ParallelDegrees> all_degrees_;
  std::vector<Combination> combinations_;
  std::map<ParallelDegrees, int> enough_chunks_;  ///< but for chunks: with fewer there is nothing more to look at
  std::set<std::pair<int, int>> laid_out_;  ///< places and chunks that modes with layouts of their own were asked for
  std::string why_refused_;
};

}  // namespace

Plan best_joint_plan(const PlanRequest& request) { return JointSearch(request).run(); }

}  // namespace strata
