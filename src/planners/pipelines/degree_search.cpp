#include "planners/pipelines/degree_search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>
#include <ranges>
#include <set>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "planners/search/memory_first.hpp"
#include "planners/states/sharded_plan.hpp"

namespace strata {
namespace {

struct PricedDegrees {
  ParallelDegrees degrees;
  Plan replicated;
  double at_least_seconds = 0.0;  ///< where it may fit
  std::int64_t at_least_bytes = 0;
  Plan plan{};  ///< of several with states of their own the best
  Evaluation found{};
  bool is_found = false;   ///< somebody was asked
  bool is_open = false;    ///< few Programs say that something fits that does not: all are to be asked
  bool is_raised = false;  ///< at_least_seconds are by what Programs need
};

class DegreeSearch {
 public:
  DegreeSearch(const PlanRequest& request, const DecideStates& decide, HeldStates states)
      : request_(request),
        decide_(decide),
        states_(states),
        simulates_(request.evaluate != nullptr && request.evaluate->knows_seconds()) {
    for (const ParallelDegrees& degrees : asked_degrees(request)) {
      try {
        candidates_.push_back({.degrees = degrees, .replicated = plan_of_degrees(request, degrees)});
      } catch (const Unsupported& refusal) {
        refused(refusal.what());
      } catch (const UserError& refusal) {
        refused(refusal.what());
      }
    }
    if (candidates_.empty()) refuse_all();
  }

  Plan best() {
    if (!simulates_) {
      if (decide_ && candidates_.size() > 1) drop_what_no_closed_form_knows();
      const bool has_states_to_decide = decide_ && capacity() > 0;
      if (candidates_.size() == 1 && !has_states_to_decide) return only_one();
      if (!decide_) refuse_to_compare(candidates_.size());
    } else {
      StepBounds& bounds = bounds_.emplace(request_, states_);
      for (PricedDegrees& c : candidates_) {
        c.at_least_bytes = capacity() > 0 ? bounds.bytes(c.degrees, c.replicated) : 0;
        if (!is_too_large(c)) c.at_least_seconds = bounds.seconds(c.degrees, c.replicated);
      }
      std::ranges::stable_sort(candidates_, {}, &PricedDegrees::at_least_seconds);
    }
    ask_least_first();
    if (best_ == nullptr && request_.most_seconds < infinity) refuse_slow();
    if (best_ == nullptr) refuse_memory();
    return explained();
  }

 private:
  int num_ranks() const { return request_.base.mesh.num_ranks(); }
  std::int64_t capacity() const { return request_.base.device_capacity_bytes; }
  /// Whatever is decided beside its degrees.
  bool is_too_large(const PricedDegrees& c) const { return capacity() > 0 && c.at_least_bytes > capacity(); }
  std::string words(const PricedDegrees& c) const { return in_words(c.degrees, num_ranks()); }
  void refused(const char* why) {
    if (why_refused_.empty()) why_refused_ = why;
  }
  [[noreturn]] void refuse_all() const {
    throw Unsupported(fmt::format("{} on {} ranks: no data, tensor and stage degrees: {}", request_.base.strategy,
                                  num_ranks(), why_refused_));
  }
  [[noreturn]] void refuse_to_compare(std::size_t combinations) const {
    const std::string& cluster = request_.cluster.name;
    throw CostsUnknown(fmt::format(
        "{} on {} ranks: {} combinations of data, tensor and stage degrees are compared by what their Programs take, "
        "and nobody knows what kernels and collectives take on cluster {}: name a described one or have a profile, "
        "or set strategy.stages, strategy.chunks, strategy.tensor and strategy.sum",
        request_.base.strategy, num_ranks(), combinations, cluster.empty() ? "(unnamed)" : cluster));
  }

  /// A closed form has no products of several ranks, and no stages that take turns on a rank.
  void drop_what_no_closed_form_knows() {
    const std::size_t all = candidates_.size();
    std::erase_if(candidates_, [](const PricedDegrees& c) { return c.degrees.tensor > 1 || c.degrees.chunks > 1; });
    if (candidates_.empty()) refuse_to_compare(all);
  }

  /// What candidates take at least, and their numbers.
  using Waiting = std::set<std::pair<double, std::size_t>>;

  /// In the order of what they take at least, which rises where few Programs let more stay replicated than fits.
  void ask_least_first() {
    Waiting waiting;
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      if (!is_too_large(candidates_[i])) waiting.emplace(candidates_[i].at_least_seconds, i);
    }
    ask_without_copies(waiting);
    while (!waiting.empty()) {
      const auto [seconds, i] = *waiting.begin();
      if (seconds > fastest_seconds()) return;
      waiting.erase(waiting.begin());
      PricedDegrees& c = candidates_[i];
      if (c.is_open) {
        ask_by_all(c);
      } else if (may_be_left_out(waiting) && raise(c)) {
        waiting.emplace(c.at_least_seconds, i);
      } else {
        ask(i, waiting);
      }
    }
  }

  /// Of what others have to be faster than.
  double fastest_seconds() const {
    return best_ != nullptr ? std::min(best_->found.step_seconds, request_.most_seconds) : request_.most_seconds;
  }

  /// A candidate whose bound rises may not be worth asking: others come before it, or it takes longer than is wanted.
  bool may_be_left_out(const Waiting& others) const { return !others.empty() || request_.most_seconds < infinity; }

  /// It waits again where it is open then.
  void ask(std::size_t candidate, Waiting& waiting) {
    PricedDegrees& c = candidates_[candidate];
    ask(c);
    if (c.is_open) waiting.emplace(c.at_least_seconds, candidate);
  }

  /// Until one fits, a few at most: what is known of the best step leaves others out sooner.
  void ask_without_copies(Waiting& waiting) {
    constexpr std::size_t most = 4;
    if (!decide_ || !simulates_) return;
    const auto has_copies = [&](const Waiting::value_type& each) {
      return candidates_[each.second].degrees.data(num_ranks()) > 1;
    };
    Waiting without_copies;
    std::ranges::remove_copy_if(waiting, std::inserter(without_copies, without_copies.end()), has_copies);
    for (const auto& each : without_copies | std::views::take(most)) {
      if (best_ != nullptr) return;
      waiting.erase(each);
      ask(each.second, waiting);
    }
  }

  /// To what has to be shared by what the Programs of replicas need: to find who shares what takes many more of them.
  /// @return it has risen.
  bool raise(PricedDegrees& c) {
    const bool may_share = decide_ && simulates_ && capacity() > 0 && states_ == HeldStates::dp_or_zdp;
    if (!may_share || std::exchange(c.is_raised, true)) return false;
    std::vector<int> places(static_cast<std::size_t>(c.degrees.places));
    std::iota(places.begin(), places.end(), 0);
    const std::vector<std::int64_t> peaks = request_.evaluate->peaks_of_places(c.replicated, places, PeaksOf::alive);
    if (peaks.empty()) return false;
    const double seconds = bounds_->sharing_seconds(c.degrees, c.replicated, peaks);
    if (seconds <= c.at_least_seconds) return false;
    c.at_least_seconds = seconds;
    return true;
  }

  /// Where somebody simulates by few Programs first.
  void ask(PricedDegrees& c) {
    ++num_asked_;
    if (!decide_) {
      evaluate(c, {{.plan = c.replicated}});
      return;
    }
    const Answers answers = evaluate(c, decided(c, simulates_ ? PeaksOf::few : PeaksOf::all));
    c.is_open = simulates_ && !answers.are_as_said;
    if (c.is_open) c.at_least_seconds = std::max(c.at_least_seconds, answers.fewest_seconds);
  }

  void ask_by_all(PricedDegrees& c) {
    c.is_open = false;
    evaluate(c, decided(c, PeaksOf::all));
  }

  std::vector<PlanWithStates> decided(const PricedDegrees& c, PeaksOf peaks) const {
    return decide_(c.degrees, c.replicated, {.peaks = peaks, .most_seconds = most_seconds()});
  }

  struct Answers {
    bool are_as_said = true;      ///< all fits that should
    double fewest_seconds = 0.0;  ///< of what should fit; 0: none was simulated
  };

  Answers evaluate(PricedDegrees& c, std::vector<PlanWithStates> plans) {
    Answers answers;
    std::vector<std::vector<OperatorRule>> known;  // what states there may be is found in several ways
    for (PlanWithStates& each : plans) {
      if (std::ranges::find(known, each.plan.operators) != known.end()) continue;
      known.push_back(each.plan.operators);
      if (each.seconds > most_seconds()) continue;
      Evaluation found = evaluated(each);
      if (should_fit(each)) {
        answers.are_as_said = answers.are_as_said && found.feasible();
        const bool is_first = answers.fewest_seconds == 0.0;
        if (is_first || found.step_seconds < answers.fewest_seconds) answers.fewest_seconds = found.step_seconds;
      }
      if (!c.is_found || is_better(found, c.found)) {
        c.plan = std::move(each.plan);
        c.found = std::move(found);
      }
      c.is_found = true;
    }
    if (!c.is_found) return answers;
    if (c.found.feasible()) {
      take(c);
    } else if (c.found.peak_bytes == 0) {
      refused(c.found.missing.c_str());
    }
    return answers;
  }

  /// By closed form, which has nothing sent while something computes: that saves half of it at most.
  double most_seconds() const { return simulates_ ? 2.0 * fastest_seconds() : infinity; }

  bool should_fit(const PlanWithStates& with_states) const {
    return capacity() == 0 || with_states.peak_bytes <= capacity();
  }

  /// By the simulator, or where nobody simulates by closed form. What is known not to fit need not be simulated.
  Evaluation evaluated(const PlanWithStates& with_states) const {
    const bool fits = should_fit(with_states);
    if (simulates_ && fits) {
      const bool is_peak_known = with_states.peak_bytes > 0;
      return is_peak_known ? (*request_.evaluate)(with_states.plan)
                           : memory_first(*request_.evaluate, with_states.plan);
    }
    return {.missing = fits ? "" : "it does not fit",
            .peak_bytes = with_states.peak_bytes,
            .step_seconds = with_states.seconds};
  }

  /// Of the same degrees.
  static bool is_better(const Evaluation& a, const Evaluation& b) {
    if (a.feasible() != b.feasible()) return a.feasible();
    return a.feasible() ? a.step_seconds < b.step_seconds : a.peak_bytes < b.peak_bytes;
  }

  void take(PricedDegrees& c) {
    if (best_ == &c) return;
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
    const auto do_not_fit = std::ranges::count_if(candidates_, [](const PricedDegrees& c) {
      return !c.is_open && c.found.peak_bytes > 0 && !c.found.feasible();
    });
    const auto open = std::ranges::count_if(candidates_, &PricedDegrees::is_open);
    const auto too_large = std::ranges::count_if(candidates_, [&](const PricedDegrees& c) { return is_too_large(c); });
    plan.why.binding =
        fmt::format("{}; of {} combinations {} were {}, of which {} do not fit{}{}{}", words(*best_),
                    candidates_.size(), num_asked_, simulates_ ? "simulated" : "compared by closed form", do_not_fit,
                    open > 0 ? fmt::format(", and {} take longer even with less in shards than fits", open) : "",
                    too_large > 0 ? fmt::format(", {} are too large by what they hold at least", too_large) : "",
                    simulates_ ? ", and the others take longer by what computes and what is sent alone" : "");
    if (runner_up_ != nullptr) plan.why.runner_up = described(*runner_up_);
    return plan;
  }

  Plan only_one() const {
    Plan plan = candidates_.front().replicated;
    plan.why.binding = words(candidates_.front()) + "; nothing else can be, or was asked for";
    if (request_.evaluate == nullptr || capacity() == 0) return plan;
    const Evaluation found = request_.evaluate->memory(plan);
    if (found.peak_bytes > capacity())
      throw_out_of_memory({fmt::format("{}, {}", plan.why.binding, gib(found.peak_bytes))});
    plan.why.predicted_peak_bytes = found.peak_bytes;
    return plan;
  }

  /// What takes longer was not looked at, so that nobody knows what would fit.
  [[noreturn]] void refuse_slow() const {
    throw Unsupported(fmt::format("{} on {} ranks: nothing that fits takes {:.6g} s or less", request_.base.strategy,
                                  num_ranks(), request_.most_seconds));
  }

  [[noreturn]] void throw_out_of_memory(const std::vector<std::string>& needs) const {
    throw OutOfMemory(fmt::format("{}: {}", nothing_fits(request_.base), fmt::join(needs, "; ")));
  }

  /// Nothing fits, or nothing lowers.
  [[noreturn]] void refuse_memory() {
    constexpr std::size_t enough = 8;
    const std::size_t num_unasked = ask_smallest(enough);
    std::erase_if(candidates_, [](const PricedDegrees& c) { return c.found.peak_bytes == 0; });
    if (candidates_.empty()) refuse_all();
    std::ranges::stable_sort(candidates_, {}, [](const PricedDegrees& c) { return c.found.peak_bytes; });
    std::vector<std::string> needs;
    for (const PricedDegrees& c : candidates_) {
      if (needs.size() == enough) break;
      needs.push_back(fmt::format("{} needs {}{}", words(c), decide_ ? "at least " : "", gib(c.found.peak_bytes)));
    }
    if (const std::size_t others = candidates_.size() + num_unasked - needs.size(); others > 0) {
      needs.push_back(fmt::format("{} others do not fit either", others));
    }
    throw_out_of_memory(needs);
  }

  /// Of what is too large by its bound, so that it can be said what is needed. @return how many others are too large.
  std::size_t ask_smallest(std::size_t most) {
    std::ranges::stable_sort(candidates_, {}, &PricedDegrees::at_least_bytes);
    std::size_t num_too_large = 0;
    for (PricedDegrees& c : candidates_) {
      if (!is_too_large(c) || num_too_large++ >= most) continue;
      ask(c);
      if (c.is_open) ask_by_all(c);
    }
    return num_too_large - std::min(num_too_large, most);
  }

  const PlanRequest& request_;
  const DecideStates& decide_;
  HeldStates states_;
  bool simulates_;
  std::optional<StepBounds> bounds_;  ///< where somebody simulates
  std::vector<PricedDegrees> candidates_;
  std::string why_refused_;
  int num_asked_ = 0;
  const PricedDegrees *best_ = nullptr, *runner_up_ = nullptr;
};

}  // namespace

Plan fastest_degrees(const PlanRequest& request) {
  const DecideStates as_they_are;
  return DegreeSearch(request, as_they_are, HeldStates::replicated).best();
}

Plan fastest_degrees(const PlanRequest& request, const DecideStates& decide, HeldStates states) {
  return DegreeSearch(request, decide, states).best();
}

}  // namespace strata
