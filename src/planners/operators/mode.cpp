#include "planners/operators/mode.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "planners/operators/choices.hpp"
#include "planners/operators/exact_search.hpp"
#include "planners/operators/fitting.hpp"
#include "planners/operators/rules.hpp"
#include "planners/sharding/mode.hpp"

namespace strata {
namespace {

template <typename T>
T option(const PlanRequest& request, const char* name) {
  return std::get<T>(request.options.at(name));
}

class OperatorPlanner {
 public:
  explicit OperatorPlanner(const PlanRequest& request)
      : request_(request),
        plan_(sharded_plan(request, {})),
        all_ranks_{plan_.mesh.ranks_per_node, plan_.mesh.nodes},
        num_parts_(std::int64_t{plan_.mesh.num_ranks()} * plan_.schedule.micro_batches),
        capacity_(plan_.device_capacity_bytes) {}

  Plan run() {
    const bool chooses_batch = plan_.global_batch == 0;
    if (plan_.global_batch % num_parts_ != 0) {
      throw Unsupported(fmt::format("{}: {} samples are not divisible by {} ranks × {} micro-batches", plan_.strategy,
                                    plan_.global_batch, plan_.mesh.num_ranks(), plan_.schedule.micro_batches));
    }
    const bool offers_sdp = option<bool>(request_, "sdp");
    if (offers_sdp) plan_.optimizer.gradients = "reduce_scatter";
    if (capacity_ == 0) {
      if (chooses_batch) {
        throw Unsupported(fmt::format(
            "{} on {} ranks: the planner chooses the batch, but nothing limits it: set resources.memory_gib, or name a "
            "described cluster",
            plan_.strategy, plan_.mesh.num_ranks()));
      }
      // Nothing communicates less, and nothing has to be saved.
      plan_.why.binding = "nothing: no memory limit is set, so every operator is replicated, as by ddp";
      return std::move(plan_);
    }
    const std::unique_ptr<CostModel> costs =
        cost_model_of(request_, "leave resources.memory_gib unset, and every operator is replicated");
    operators_ = std::make_unique<OperatorChoices>(request_.graph, plan_, *costs, choice_options(request_));
    fitting_ = std::make_unique<Fitting>(*operators_, fitting_options(request_));
    samples_ = chooses_batch ? samples_that_may_fit() : std::vector<std::int64_t>{plan_.global_batch / num_parts_};

    const std::optional<Found> best = search();
    if (!best) refuse_capacity(chooses_batch);
    plan_.global_batch = best->answer.samples * num_parts_;
    plan_.operators = rules(best->choices);
    explain(*best, chooses_batch);
    return std::move(plan_);
  }

 private:
  const ChoiceProblem& problem() const { return operators_->problem(); }
  bool is_paper() const { return option<std::string>(request_, "cost") == "paper"; }
  std::vector<OperatorRule> rules(const std::vector<int>& choices) const {
    return rules_of(*operators_, request_.graph, all_ranks_, choices);
  }

  /// 1, 2, 3, … as long as even the least that any plan needs fits.
  std::vector<std::int64_t> samples_that_may_fit() const {
    std::int64_t most = 0, step = 1;
    const auto fits = [&](std::int64_t b) { return least_peak_bytes(problem(), b) <= capacity_; };
    while (fits(most + step)) {
      most += step;
      step *= 2;
    }
    for (; step > 0; step /= 2) {
      if (fits(most + step)) most += step;
    }
    std::vector<std::int64_t> all(static_cast<std::size_t>(most));
    std::iota(all.begin(), all.end(), std::int64_t{1});
    return all;
  }

  /// The best over all batch sizes within @p capacity by closed form; fills the frontier.
  std::optional<Found> best_within(std::int64_t capacity) {
    frontier_.clear();
    std::optional<Found> best;
    for (const std::int64_t b : samples_) {
      std::optional<Found> found = fitting_->fit(b, capacity);
      if (!found) continue;
      frontier_.push_back(*found);
      const double seconds = found->answer.seconds_per_sample();
      if (!best || seconds <= best->answer.seconds_per_sample()) best = std::move(found);
    }
    return best;
  }

  /// The arena of the fullest rank; 0: nobody lowers here, or lowering refuses.
  std::int64_t program_peak(const Found& found) const {
    if (request_.evaluate == nullptr || is_paper()) return 0;
    Plan plan = plan_;
    plan.global_batch = found.answer.samples * num_parts_;
    plan.operators = rules(found.choices);
    return request_.evaluate->memory(plan).peak_bytes;
  }

  static void set_measured(Found& found, std::int64_t peak_bytes) {
    found.peak_bytes = peak_bytes;
    found.bytes_by = "the Program";
  }

  /// The closed form decides; where the winner's Program needs more or less than it says, the capacity is moved by the
  /// difference and the search repeated. Between what fitted and what did not it is halved a few times: a plan with the
  /// bytes of the one and the difference of the other may exceed.
  std::optional<Found> search() {
    constexpr int most_programs = 12;
    const std::int64_t close_enough = capacity_ / 4096;
    std::optional<Found> best;
    std::vector<Found> best_frontier;
    std::optional<std::int64_t> fitting, failing;  // corrections
    std::int64_t correction = 0;
    for (int i = 0; i < most_programs; ++i) {
      std::optional<Found> found = best_within(capacity_ - correction);
      if (!found) {
        // Too much was taken away: less than this, and more than what exceeded, may leave a plan that fits.
        if (fitting || !failing || correction - *failing <= close_enough) break;
        correction = std::midpoint(*failing, correction);
        continue;
      }
      const std::int64_t closed_form = found->peak_bytes;
      const std::int64_t peak = program_peak(*found);
      if (peak == 0) {
        if (best) break;
        return found;
      }
      is_measured_ = true;
      least_measured_ = std::min(least_measured_, peak);
      set_measured(*found, peak);
      if (peak <= capacity_) {
        fitting = correction;
        if (!best || found->answer.seconds_per_sample() < best->answer.seconds_per_sample()) {
          best = std::move(found);
          for (Found& each : frontier_) {
            if (each.answer.samples == best->answer.samples) {
              set_measured(each, peak);
            } else if (correction != 0) {
              each.peak_bytes += correction;
              each.bytes_by = "corrected closed form";
            }
          }
          best_frontier = frontier_;
        }
      } else {
        failing = correction;
      }
      const std::int64_t difference = peak - closed_form;
      if (!fitting || (!failing && difference < correction - close_enough)) {
        correction = difference;
      } else if (failing && *fitting - *failing > close_enough) {
        correction = std::midpoint(*fitting, *failing);
      } else {
        break;
      }
    }
    if (!best && is_measured_) {
      // The closed form led nowhere: the plan that needs least has the last word, and its bytes are what a refusal
      // names.
      Found least = fitting_->least(samples_.empty() ? 1 : samples_.front());
      least_measured_ = program_peak(least);
      if (least_measured_ > 0 && least_measured_ <= capacity_) {
        set_measured(least, least_measured_);
        best_frontier = {least};
        best = std::move(least);
      }
    }
    frontier_ = std::move(best_frontier);
    return best;
  }

  std::string states_in_words(const BatchAnswer& answer) const {
    int sharded = 0, sliced = 0, sdp = 0, all = 0;
    const std::vector<int> choices = operators_->dealt(answer.counts);
    for (std::size_t u = 0; u < choices.size(); ++u) {
      const UnitChoice& choice = operators_->meaning(u, choices[u]);
      ++all;
      sliced += choice.slices > 0 ? 1 : 0;
      sharded += choice.slices == 0 && choice.hold == Hold::zdp ? 1 : 0;
      sdp += choice.hold == Hold::sdp ? 1 : 0;
    }
    std::string text = fmt::format("{} of {} operators ZDP, {} in slices", sharded, all, sliced);
    return sdp == 0 ? text : text + fmt::format(", {} SDP", sdp);
  }

  std::string line_of(const Found& found) const {
    const BatchAnswer& a = found.answer;
    return fmt::format("b = {}: {:.6g} s a sample, {:.6g} s, {} by {}, {}; gap {:.2g}", a.samples,
                       a.seconds_per_sample(), a.seconds, gib(found.peak_bytes), found.bytes_by, states_in_words(a),
                       a.gap);
  }

  void explain(const Found& best, bool chooses_batch) {
    Why& why = plan_.why;
    why.predicted_seconds = best.answer.seconds;
    why.predicted_peak_bytes = best.peak_bytes;
    const BatchAnswer replicated = evaluated(problem(), fastest(problem()), best.answer.samples);
    const bool binds = best.answer.seconds > replicated.seconds;
    why.binding = binds ? fmt::format("memory: {}; does not fit: all at their fastest: {:.6g} s, {}; gap {:.2g}",
                                      gib(capacity_), replicated.seconds, gib(replicated.peak_bytes), best.answer.gap)
                        : "nothing: the fastest choice of every operator fits";
    why.binding += fmt::format("; bytes by {}", best.bytes_by);
    if (!chooses_batch) return;
    const Found* runner_up = nullptr;
    for (const Found& found : frontier_) {
      why.frontier.push_back(line_of(found));
      const double seconds = found.answer.seconds_per_sample();
      if (found.answer.samples == best.answer.samples) continue;
      if (runner_up == nullptr || seconds < runner_up->answer.seconds_per_sample()) runner_up = &found;
    }
    if (runner_up != nullptr) why.runner_up = line_of(*runner_up);
  }

  [[noreturn]] void refuse_capacity(bool chooses_batch) const {
    const std::int64_t b = chooses_batch ? 1 : samples_.front();
    std::int64_t needed = least_peak_bytes(problem(), b);
    const BatchAnswer least = evaluated(problem(), least_resident(problem()), b);
    needed = std::max(needed, operators_->peak_bytes(operators_->dealt(least.counts), b));
    if (needed <= capacity_ && least_measured_ == std::numeric_limits<std::int64_t>::max()) {
      throw Unsupported(fmt::format(
          "{} on {} ranks: the depth-first search found nothing that fits into {} within {} nodes; set "
          "strategy.dfs_nodes higher, or strategy.search = \"exact\"",
          plan_.strategy, plan_.mesh.num_ranks(), gib(capacity_), option<std::int64_t>(request_, "dfs_nodes")));
    }
    if (needed <= capacity_) needed = least_measured_;  // the Program's account refused what the closed form found
    const std::vector<std::int64_t> fitting = samples_that_may_fit();
    const std::string would_fit =
        chooses_batch || fitting.empty() || fitting.back() >= b
            ? fmt::format("{} would fit it", gib(needed))
            : fmt::format("{} samples would fit, or {}", fitting.back() * num_parts_, gib(needed));
    throw Unsupported(fmt::format(
        "{} on {} ranks: nothing fits into a device memory of {} ({} bytes): with {} samples a rank even all operators "
        "sharded need {}, {} bytes too much; of it states {}, the largest workspace {}, activations and their "
        "gradients "
        "{}; {}",
        plan_.strategy, plan_.mesh.num_ranks(), gib(capacity_), capacity_, b, gib(needed), needed - capacity_,
        gib(least.resident_bytes), gib(least.workspace_bytes),
        gib(std::max<std::int64_t>(0, needed - least.resident_bytes - least.workspace_bytes)), would_fit));
  }

  const PlanRequest& request_;
  Plan plan_;
  Factor all_ranks_;
  std::int64_t num_parts_;  ///< ranks × micro-batches
  std::int64_t capacity_;
  bool is_measured_ = false;
  std::int64_t least_measured_ = std::numeric_limits<std::int64_t>::max();
  std::unique_ptr<OperatorChoices> operators_;
  std::unique_ptr<Fitting> fitting_;
  std::vector<std::int64_t> samples_;
  std::vector<Found> frontier_;  ///< by batch size; bytes as those of the answer are known
};

}  // namespace

std::span<const OptionRow> operator_options(bool with_slices) {
  static const std::array rows = {
      OptionRow{"slices", std::int64_t{4}, ">= 0 and <= 64",
                "parts of a linear's weight along its input, each with a mode of its own; 0: none"},
      OptionRow{"granularity", std::string("block"), "block | linear",
                "an operator is an attention or MLP block, the embedding or the head; or each linear"},
      OptionRow{"sdp", false, "", "operators may also shard gradients and optimizer states alone"},
      OptionRow{"search", std::string("exact"), "exact | dfs", "exact, or the paper's depth-first search"},
      OptionRow{"dfs_nodes", std::int64_t{1'000'000}, ">= 1", "dfs: where the search of a batch size ends"},
      OptionRow{"cost", std::string("analytic"), "paper | analytic | measured",
                "where the planner takes times from; paper: its memory too, every workspace added up"},
      overlap_option(),
  };
  return std::span(rows).subspan(with_slices ? 0 : 1);
}

ChoiceOptions choice_options(const PlanRequest& request) {
  const auto slices = request.options.find("slices");
  return {.granularity = parse_granularity(option<std::string>(request, "granularity")),
          .slices = slices == request.options.end() ? 0 : static_cast<int>(std::get<std::int64_t>(slices->second)),
          .offers_sdp = option<bool>(request, "sdp"),
          .paper = option<std::string>(request, "cost") == "paper"};
}

FittingOptions fitting_options(const PlanRequest& request) {
  return {.exact = option<std::string>(request, "search") == "exact",
          .dfs_nodes = option<std::int64_t>(request, "dfs_nodes"),
          .offers_sdp = option<bool>(request, "sdp")};
}

Plan plan_by_operator(const PlanRequest& request) { return OperatorPlanner(request).run(); }

}  // namespace strata
