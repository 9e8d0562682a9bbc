#include "planners/operators/plan_by_operator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "partition/sample_parts.hpp"
#include "planners/operators/choices.hpp"
#include "planners/operators/fitting.hpp"
#include "planners/operators/program_search.hpp"
#include "planners/operators/rules.hpp"
#include "planners/states/sharded_plan.hpp"

namespace strata {
namespace {

/// A plan that may be taken.
struct Candidate {
  std::string_view name;                  ///< who found it
  const ProgramSearch* search = nullptr;  ///< whose choices it has
  Found found;
  double step_seconds = 0.0;  ///< by closed form; by evaluation where there is one
  double seconds_per_sample() const { return step_seconds / static_cast<double>(found.answer.samples); }
};

class OperatorPlanner {
 public:
  explicit OperatorPlanner(const PlanRequest& request)
      : request_(request),
        plan_(sharded_plan(request, {})),
        all_ranks_{plan_.mesh.ranks_per_node, plan_.mesh.nodes},
        num_parts_(std::int64_t{plan_.mesh.num_ranks()} * plan_.schedule.micro_batches),
        capacity_(plan_.device_capacity_bytes),
        asked_samples_(most_samples_of_rank(plan_)) {}

  Plan run() {
    const bool offers_sdp = request_.option<bool>("sdp");
    if (offers_sdp) plan_.optimizer.gradients = "reduce_scatter";
    if (capacity_ == 0) {
      if (chooses_batch()) {
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
    const ChoiceOptions asked = choice_options(request_);
    ChoiceOptions of_whole_operators = asked;
    of_whole_operators.slices = 0;
    const OperatorChoices choices(request_.graph, plan_, *costs, asked);
    const OperatorChoices whole_choices(request_.graph, plan_, *costs, of_whole_operators);
    ProgramSearch search = search_of(choices), whole_search = search_of(whole_choices);
    std::vector<Candidate> candidates = candidates_of(search, whole_search, asked.slices > 1);
    if (candidates.empty()) refuse_capacity(search);
    const Candidate& best = fastest_of(candidates);
    plan_ = with_rules(best.search->operators(), best.found.choices, best.found.answer.samples);
    explain(best, candidates, search);
    return std::move(plan_);
  }

 private:
  bool chooses_batch() const { return asked_samples_ == 0; }
  bool has_programs() const { return request_.evaluate != nullptr && request_.option<std::string>("cost") != "paper"; }
  /// Whether what was found is compared by prediction, and with plans that the search did not find.
  bool compares() const { return has_programs() && request_.option<std::string>("choice") == "simulated"; }
  Plan with_rules(const OperatorChoices& operators, const std::vector<int>& choices, std::int64_t samples) const {
    Plan plan = plan_;
    // What is asked need not be as many on every rank.
    if (samples != asked_samples_) plan.global_batch = samples * num_parts_;
    plan.operators = rules_of(operators, request_.graph, all_ranks_, choices);
    return plan;
  }

  ProgramSearch search_of(const OperatorChoices& operators) {
    const auto program_peak = [this, &operators](const std::vector<int>& choices, std::int64_t samples) {
      Plan plan = with_rules(operators, choices, samples);
      // Searches ask about the same plans.
      const auto known = std::ranges::find_if(accounts_, [&](const Account& a) {
        return a.global_batch == plan.global_batch && a.operators == plan.operators;
      });
      if (known != accounts_.end()) return known->peak_bytes;
      const std::int64_t peak = request_.evaluate->memory(plan).peak_bytes;
      accounts_.push_back({plan.global_batch, std::move(plan.operators), peak});
      return peak;
    };
    return {operators, fitting_options(request_), capacity_, has_programs() ? PeakOfChoices(program_peak) : nullptr};
  }

  /// What the search finds, and, where plans are compared, what it must not be slower than: osdp-base's plans and those
  /// of zero3 and ddp.
  std::vector<Candidate> candidates_of(ProgramSearch& search, ProgramSearch& whole_search, bool has_slices) const {
    std::vector<Candidate> all;
    const auto add = [&](std::string_view name, const ProgramSearch& by, Found found) {
      all.push_back({.name = name, .search = &by, .found = std::move(found)});
      all.back().step_seconds = all.back().found.answer.seconds;
    };
    for (Found& found : search.plans(asked_samples_)) {
      add(has_slices ? "slices allowed" : "whole operators", search, std::move(found));
    }
    if (!compares()) return all;
    if (has_slices) {
      for (Found& found : whole_search.plans(asked_samples_)) add("whole operators", whole_search, std::move(found));
    }
    if (auto found = whole_search.sharded(asked_samples_)) add("all ZDP", whole_search, std::move(*found));
    if (auto found = whole_search.replicated(asked_samples_)) add("all DP", whole_search, std::move(*found));
    return without_repetitions(std::move(all));
  }

  std::vector<Candidate> without_repetitions(std::vector<Candidate> all) const {
    std::vector<Plan> plans;
    std::vector<Candidate> different;
    for (Candidate& candidate : all) {
      Plan plan = with_rules(candidate.search->operators(), candidate.found.choices, candidate.found.answer.samples);
      if (std::ranges::find(plans, plan) != plans.end()) continue;
      plans.push_back(std::move(plan));
      different.push_back(std::move(candidate));
    }
    return different;
  }

  /// By evaluation, which overlaps what runs side by side, where it tells the seconds of all; else by closed form. Of
  /// equals the first.
  const Candidate& fastest_of(std::vector<Candidate>& candidates) {
    std::vector<Evaluation> evaluations;
    if (compares() && request_.evaluate->knows_seconds()) {
      for (const Candidate& c : candidates) {
        evaluations.push_back(
            (*request_.evaluate)(with_rules(c.search->operators(), c.found.choices, c.found.answer.samples)));
      }
    }
    const auto has_seconds = [](const Evaluation& e) {
      return e.step_seconds > 0.0;
    };  // what lowering refuses has none
    if (!evaluations.empty() && std::ranges::all_of(evaluations, has_seconds)) {
      for (std::size_t i = 0; i < candidates.size(); ++i) candidates[i].step_seconds = evaluations[i].step_seconds;
      seconds_by_ = evaluations.front().source;
    }
    return *std::ranges::min_element(candidates, {}, &Candidate::seconds_per_sample);
  }

  static std::string states_in_words(const OperatorChoices& operators, const std::vector<int>& choices) {
    int sharded = 0, sliced = 0, sdp = 0, all = 0;
    for (std::size_t u = 0; u < choices.size(); ++u) {
      const UnitChoice& choice = operators.meaning(u, choices[u]);
      ++all;
      sliced += choice.slices > 0 ? 1 : 0;
      sharded += choice.slices == 0 && choice.hold == Hold::zdp ? 1 : 0;
      sdp += choice.hold == Hold::sdp ? 1 : 0;
    }
    std::string text = fmt::format("{} of {} operators ZDP, {} in slices", sharded, all, sliced);
    return sdp == 0 ? text : text + fmt::format(", {} SDP", sdp);
  }

  static std::string line_of(const OperatorChoices& operators, const Found& found) {
    const BatchAnswer& a = found.answer;
    return fmt::format("b = {}: {:.6g} s a sample, {:.6g} s, {} by {}, {}; gap {:.2g}", a.samples,
                       a.seconds_per_sample(), a.seconds, gib(found.peak_bytes), found.bytes_by,
                       states_in_words(operators, found.choices), a.gap);
  }

  void explain(const Candidate& best, const std::vector<Candidate>& candidates, const ProgramSearch& search) {
    const BatchAnswer& answer = best.found.answer;
    const OperatorChoices& operators = best.search->operators();
    Why& why = plan_.why;
    why.predicted_seconds = best.step_seconds;
    why.predicted_peak_bytes = best.found.peak_bytes;
    const BatchAnswer replicated = evaluated(operators.problem(), fastest(operators.problem()), answer.samples);
    const bool binds = answer.seconds > replicated.seconds;
    why.binding = binds ? fmt::format("memory: {}; does not fit: all at their fastest: {:.6g} s, {}; gap {:.2g}",
                                      gib(capacity_), replicated.seconds, gib(replicated.peak_bytes), answer.gap)
                        : "nothing: the fastest choice of every operator fits";
    why.binding += fmt::format("; bytes by {}", best.found.bytes_by);
    if (!seconds_by_.empty()) {
      why.binding += fmt::format("; fastest of {} by {}:", candidates.size(), seconds_by_);
      for (const Candidate& c : candidates) {
        why.binding += fmt::format("{} {}, b = {}: {:.6g} s a sample", &c == &candidates.front() ? "" : ",", c.name,
                                   c.found.answer.samples, c.seconds_per_sample());
      }
    }
    if (!chooses_batch()) return;
    bool is_in = false;
    const Found* runner_up = nullptr;
    const auto add_best = [&] {
      why.frontier.push_back(line_of(operators, best.found));
      is_in = true;
    };
    for (const Found& found : search.frontier()) {
      if (!is_in && found.answer.samples >= answer.samples) add_best();
      if (found.answer.samples == answer.samples) continue;
      why.frontier.push_back(line_of(search.operators(), found));
      const double seconds = found.answer.seconds_per_sample();
      if (runner_up == nullptr || seconds < runner_up->answer.seconds_per_sample()) runner_up = &found;
    }
    if (!is_in) add_best();
    if (runner_up != nullptr) why.runner_up = line_of(search.operators(), *runner_up);
  }

  [[noreturn]] void refuse_capacity(const ProgramSearch& search) const {
    const std::int64_t b = chooses_batch() ? 1 : asked_samples_;
    const Found least = search.least(b);
    const std::int64_t needed = least.peak_bytes;
    if (needed <= capacity_) {
      throw Unsupported(fmt::format(
          "{} on {} ranks: the depth-first search found nothing that fits into {} within {} nodes; set "
          "strategy.dfs_nodes higher, or strategy.search = \"exact\"",
          plan_.strategy, plan_.mesh.num_ranks(), gib(capacity_), request_.option<std::int64_t>("dfs_nodes")));
    }
    const std::int64_t fitting = search.most_samples();
    const std::string would_fit = fitting == 0 || fitting >= b
                                      ? fmt::format("{} would fit it", gib(needed))
                                      : fmt::format("{} samples would fit, or {}", fitting * num_parts_, gib(needed));
    const BatchAnswer& answer = least.answer;
    throw OutOfMemory(fmt::format(
        "{}: with {} samples a rank even all operators sharded need {}, {} bytes too much; of it states {}, the "
        "largest workspace {}, activations and their gradients {}; {}",
        nothing_fits(plan_), b, gib(needed), needed - capacity_, gib(answer.resident_bytes),
        gib(answer.workspace_bytes),
        gib(std::max<std::int64_t>(0, needed - answer.resident_bytes - answer.workspace_bytes)), would_fit));
  }

  struct Account {
    std::int64_t global_batch = 0;
    std::vector<OperatorRule> operators;
    std::int64_t peak_bytes = 0;
  };
  const PlanRequest& request_;
  Plan plan_;
  Factor all_ranks_;
  std::int64_t num_parts_;  ///< ranks × micro-batches
  std::int64_t capacity_;
  std::int64_t asked_samples_;  ///< of a micro-batch, of the rank that has most; 0: the planner chooses
  std::vector<Account> accounts_;
  std::string seconds_by_;  ///< empty: closed form
};

}  // namespace

namespace {

std::span<const OptionRow> all_rows() {
  static const std::array rows = {
      OptionRow{"slices", std::int64_t{default_slices}, ">= 0 and <= 64",
                "parts of a linear's weight along its input, each with a mode of its own; 0: none"},
      OptionRow{"choice", std::string("simulated"), "simulated | search",
                "search: what the search finds, as the paper has it; simulated: the fastest by prediction of that, the "
                "same without slices, all ZDP and all DP"},
      OptionRow{"granularity", std::string("block"), "block | linear",
                "an operator is an attention or MLP block, the embedding or the head; or each linear"},
      OptionRow{"sdp", false, "", "operators may also shard gradients and optimizer states alone"},
      OptionRow{"search", std::string("exact"), "exact | dfs", "exact, or the paper's depth-first search"},
      OptionRow{"dfs_nodes", std::int64_t{1'000'000}, ">= 1", "dfs: where the search of a batch size ends"},
      OptionRow{"cost", std::string("analytic"), "paper | analytic | measured",
                "where the planner takes times from; paper: its memory too, every workspace added up"},
      overlap_option(),
  };
  return rows;
}

}  // namespace

std::span<const OptionRow> operator_options(bool with_slices) { return all_rows().subspan(with_slices ? 0 : 1); }
std::span<const OptionRow> operator_search_options() { return all_rows().subspan(2); }

ChoiceOptions choice_options(const PlanRequest& request) {
  return {.granularity = parse_granularity(request.option<std::string>("granularity")),
          .slices = request.options.contains("slices") ? static_cast<int>(request.option<std::int64_t>("slices")) : 0,
          .offers_sdp = request.option<bool>("sdp"),
          .paper = request.option<std::string>("cost") == "paper"};
}

FittingOptions fitting_options(const PlanRequest& request) {
  return {.exact = request.option<std::string>("search") == "exact",
          .dfs_nodes = request.option<std::int64_t>("dfs_nodes"),
          .offers_sdp = request.option<bool>("sdp")};
}

Plan plan_by_operator(const PlanRequest& request) { return OperatorPlanner(request).run(); }

}  // namespace strata
