#include "planners/operators/in_stages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "cost/group_shape.hpp"
#include "ir/shards.hpp"
#include "ir/stages.hpp"
#include "planners/operators/mode.hpp"
#include "planners/operators/rules.hpp"
#include "planners/pipeline.hpp"
#include "planners/sharding/mode.hpp"

namespace strata {
namespace {

constexpr ScheduleKind schedule = ScheduleKind::one_forward_one_backward;

template <typename T>
T option(const PlanRequest& request, const char* name) {
  return std::get<T>(request.options.at(name));
}

/// A plan for some degrees, or how much it lacks.
struct Degrees {
  Plan plan;
  double seconds = 0.0;         ///< 0: nobody had to know
  std::int64_t peak_bytes = 0;  ///< 0: nobody had to know
  bool fits = true;
  std::string in_words() const {
    std::string text = fmt::format("data {} × stage {}", axis_size(plan.mesh, "data"), plan.stages.count);
    if (seconds > 0.0) text += fmt::format(": {:.6g} s", seconds);
    if (peak_bytes > 0) text += fmt::format(", {}", gib(peak_bytes));
    return text;
  }
};

/// The stages of one plan, each with its own operators and memory.
class StagedOperators {
 public:
  /// @param plan mesh, stages and schedule; no rules yet.
  StagedOperators(const PlanRequest& request, Plan plan, const CostModel& costs, bool chooses_states)
      : request_(request),
        plan_(std::move(plan)),
        costs_(costs),
        chooses_states_(chooses_states),
        stages_(cut_into_stages(request.graph, plan_.stages)),
        data_(data_grid(plan_.mesh)),
        samples_(plan_.global_batch / (std::int64_t{data_.total()} * plan_.schedule.micro_batches)) {
    const auto users = stages_of_parameters(request.graph, stages_);
    for (std::size_t p = 0; p < users.size(); ++p) {
      if (users[p].size() > 1) shared_.push_back(static_cast<int>(p));
    }
    for (const Stage& stage : stages_) graphs_.push_back(std::make_unique<ModelGraph>(graph_of(request.graph, stage)));
  }

  Degrees best() {
    Degrees best = held(Hold::dp);
    if (shared_.empty() || !may_shard() || everything_replicated_) return best;
    Degrees sharded = held(Hold::zdp);
    const auto worth = [](const Degrees& d) {
      return std::pair(!d.fits, d.fits ? d.seconds : static_cast<double>(d.peak_bytes));
    };
    return worth(sharded) < worth(best) ? std::move(sharded) : std::move(best);
  }

 private:
  std::int64_t capacity() const { return plan_.device_capacity_bytes; }
  bool may_shard() const { return chooses_states_ && capacity() > 0 && data_.total() > 1; }

  /// Every parameter that stages share held as @p shared.
  Degrees held(Hold shared) {
    std::deque<OperatorChoices> operators;
    std::vector<std::unique_ptr<Fitting>> fittings;
    ChoiceOptions choices{.slices = 0};
    FittingOptions fitting;
    if (chooses_states_) {
      choices = choice_options(request_);
      fitting = fitting_options(request_);
    }
    choices.pinned = shared_;
    choices.pinned_hold = shared;
    for (const auto& graph : graphs_) operators.emplace_back(*graph, plan_, costs_, choices);
    for (const OperatorChoices& of_stage : operators) {
      fittings.push_back(std::make_unique<Fitting>(of_stage, fitting));
    }
    std::vector<Found> found;
    for (const auto& of_stage : fittings) found.push_back(of_stage->replicated(samples_));
    Degrees result = joined(operators, found);
    everything_replicated_ = shared == Hold::dp && result.fits;
    if (result.fits || !may_shard()) return result;
    return fitted(operators, fittings);
  }

  /// Where a stage's Program needs more than the closed form says, its capacity is lowered by the difference; the plan
  /// that needs least has the last word.
  Degrees fitted(const std::deque<OperatorChoices>& operators, std::span<const std::unique_ptr<Fitting>> fittings) {
    constexpr int most_programs = 8;
    std::vector<std::int64_t> corrections(stages_.size(), 0);
    std::vector<bool> is_least(stages_.size(), false);
    for (int i = 0;; ++i) {
      std::vector<Found> found;
      for (std::size_t s = 0; s < stages_.size(); ++s) {
        std::optional<Found> of_stage;
        const std::int64_t room = capacity() - in_flight_bytes(operators[s], s) - corrections[s];
        if (!is_least[s]) of_stage = fittings[s]->fit(samples_, room);
        is_least[s] = !of_stage;
        found.push_back(of_stage ? std::move(*of_stage) : fittings[s]->least(samples_));
      }
      Degrees result = joined(operators, found);
      if (result.fits) return result;
      bool may_shrink = false;
      for (std::size_t s = 0; s < stages_.size(); ++s) {
        if (peaks_[s] <= capacity() || is_least[s]) continue;
        may_shrink = true;
        const std::int64_t difference = peaks_[s] - found[s].peak_bytes - in_flight_bytes(operators[s], s);
        corrections[s] = std::max(difference, corrections[s] + peaks_[s] - capacity());
        is_least[s] = i + 2 >= most_programs;
      }
      if (!may_shrink) return result;
    }
  }

  /// Of the micro-batches beyond the one whose backward runs.
  std::int64_t in_flight_bytes(const OperatorChoices& operators, std::size_t stage) const {
    const auto behind = static_cast<int>(stages_.size() - stage);
    return (std::min(plan_.schedule.micro_batches, behind) - 1) * samples_ * operators.kept_bytes_per_sample();
  }

  /// The plan of all stages, what it takes and needs.
  Degrees joined(const std::deque<OperatorChoices>& operators, const std::vector<Found>& found) {
    Degrees result{.plan = plan_};
    result.plan.operators = {{.match = "*", .state = StateFactors{}}};
    const int micro_batches = plan_.schedule.micro_batches;
    double slowest = 0.0, most_computed = 0.0, message = 0.0;
    peaks_.clear();
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      const std::vector<OperatorRule> rules = rules_of(operators[s], *graphs_[s], data_, found[s].choices);
      result.plan.operators.insert(result.plan.operators.end(), rules.begin() + 1, rules.end());  // without "*"
      slowest = std::max(slowest, found[s].answer.seconds);
      most_computed = std::max(most_computed, operators[s].problem().compute_seconds(samples_) / micro_batches);
      message = std::max(message, message_seconds(s));
      peaks_.push_back(found[s].peak_bytes + in_flight_bytes(operators[s], s));
    }
    const auto others = static_cast<double>(stages_.size() - 1);
    result.seconds = slowest + others * (most_computed + 2.0 * message);
    if (request_.evaluate != nullptr && capacity() > 0) {
      const Evaluation account = request_.evaluate->memory(result.plan);
      // None where it does not lower: then the closed form decides.
      if (account.stage_peak_bytes.size() == stages_.size()) peaks_ = account.stage_peak_bytes;
    }
    result.peak_bytes = *std::ranges::max_element(peaks_);
    result.fits = capacity() == 0 || result.peak_bytes <= capacity();
    return result;
  }

  /// From the stage before to stage @p stage.
  double message_seconds(std::size_t stage) const {
    if (stage == 0) return 0.0;
    std::int64_t elements = 0;
    for (const int t : tensors_across(request_.graph, stages_[stage].first_operator)) {
      elements += request_.graph.tensors[static_cast<std::size_t>(t)].elements_per_sample();
    }
    const int there = static_cast<int>(stage) * data_.total();
    const std::vector<int> ends = {there - data_.total(), there};
    return costs_
        .collective(Collective::send, elements * samples_ * size_of(plan_.dtypes.compute),
                    placement(ends, plan_.mesh.ranks_per_node))
        .seconds;
  }

  const PlanRequest& request_;
  Plan plan_;
  const CostModel& costs_;
  bool chooses_states_;
  std::vector<Stage> stages_;
  Factor data_;
  std::int64_t samples_;  ///< of a rank and micro-batch
  std::vector<int> shared_;
  std::vector<std::unique_ptr<ModelGraph>> graphs_;  ///< by stage
  std::vector<std::int64_t> peaks_;                  ///< by stage, of the last plan
  bool everything_replicated_ = false;
};

class StagedPlanner {
 public:
  StagedPlanner(const PlanRequest& request, bool chooses_states) : request_(request), chooses_states_(chooses_states) {}

  Plan run() {
    const auto tensor = option<std::int64_t>(request_, "tensor");
    if (tensor > 1) {
      throw Unsupported(fmt::format("{} on {} ranks: tensor = {}: stages of tensor-parallel ranks cannot be lowered",
                                    request_.base.strategy, num_ranks(), tensor));
    }
    const auto asked = option<std::int64_t>(request_, "stages");
    std::vector<Plan> candidates = asked > 0 ? std::vector{candidate(asked)} : all_candidates();
    const bool is_limited = request_.base.device_capacity_bytes > 0;
    if (candidates.size() == 1 && !is_limited) {
      Plan plan = std::move(candidates.front());
      plan.why.binding = "nothing: no memory limit is set, and there is one way to divide the ranks";
      return plan;
    }
    const std::unique_ptr<CostModel> costs = cost_model_of(
        request_, is_limited ? "leave resources.memory_gib unset and set strategy.stages" : "set strategy.stages");
    std::vector<Degrees> all;
    for (Plan& plan : candidates) {
      all.push_back(StagedOperators(request_, std::move(plan), *costs, chooses_states_).best());
    }
    return best_of_all(std::move(all));
  }

 private:
  int num_ranks() const { return request_.base.mesh.num_ranks(); }

  Plan candidate(std::int64_t stages) const {
    Plan plan = pipeline_plan(request_, schedule, stages);
    data_grid(plan.mesh);  // refuses what is none
    if (!chooses_states_) return plan;
    plan.optimizer.sharding = "intra_tensor";
    plan.optimizer.spread = "all_gather";
    plan.gathered_after_recompute = "regather";
    if (option<bool>(request_, "sdp")) plan.optimizer.gradients = "reduce_scatter";
    set_overlap(plan, option<std::string>(request_, "overlap"));
    return plan;
  }

  /// Every number of stages for which the model has blocks, the ranks divide and the batch divides.
  std::vector<Plan> all_candidates() const {
    std::vector<Plan> plans;
    std::string why;
    for (int stages = 1; stages <= num_ranks(); ++stages) {
      if (num_ranks() % stages != 0) continue;
      const std::int64_t parts = std::int64_t{num_ranks() / stages} * request_.base.schedule.micro_batches;
      if (request_.base.global_batch % parts != 0) {
        why = fmt::format("{} samples are not divisible by {} data ranks × {} micro-batches",
                          request_.base.global_batch, num_ranks() / stages, request_.base.schedule.micro_batches);
        continue;
      }
      try {
        plans.push_back(candidate(stages));
      } catch (const Unsupported& refusal) {
        why = refusal.what();
      }
    }
    if (plans.empty()) {
      throw Unsupported(
          fmt::format("{} on {} ranks: no data and stage degrees: {}", request_.base.strategy, num_ranks(), why));
    }
    return plans;
  }

  Plan best_of_all(std::vector<Degrees> all) const {
    // Of equals the one with fewer stages.
    std::ranges::stable_sort(all, std::ranges::less{}, [](const Degrees& d) { return std::pair(!d.fits, d.seconds); });
    Degrees& best = all.front();
    if (!best.fits) {
      std::vector<std::string> needs;
      for (const Degrees& d : all) needs.push_back(d.in_words());
      throw Unsupported(fmt::format("{} on {} ranks: nothing fits into a device memory of {} ({} bytes): {}",
                                    request_.base.strategy, num_ranks(), gib(request_.base.device_capacity_bytes),
                                    request_.base.device_capacity_bytes, fmt::join(needs, "; ")));
    }
    Why& why = best.plan.why;
    why.predicted_seconds = best.seconds;
    why.predicted_peak_bytes = request_.base.device_capacity_bytes > 0 ? best.peak_bytes : 0;
    if (all.size() > 1) why.runner_up = all[1].in_words() + (all[1].fits ? "" : ", which does not fit");
    const auto left_out = std::ranges::count(all, false, &Degrees::fits);
    why.binding = fmt::format("{} of {} divisions of the ranks fit", std::ssize(all) - left_out, all.size());
    return std::move(best.plan);
  }

  const PlanRequest& request_;
  bool chooses_states_;
};

std::vector<OptionRow> rows_of(bool chooses_states) {
  std::vector<OptionRow> rows = {
      {"stages", std::int64_t{0}, ">= 0", "stages of the pipeline; 0: searched together with the data degree"},
      {"tensor", std::int64_t{1}, ">= 1", "tensor-parallel ranks of a stage; 1, since more is not lowered"},
      pipeline_options()[1],
  };
  if (chooses_states) {
    const auto of_states = operator_options(true);
    rows.insert(rows.end(), of_states.begin(), of_states.end());
  } else {
    rows.push_back(
        {"cost", std::string("analytic"), "paper | analytic | measured", "where the search takes times from"});
  }
  return rows;
}

}  // namespace

std::span<const OptionRow> staged_options(bool chooses_states) {
  static const std::vector<OptionRow> with = rows_of(true), without = rows_of(false);
  return chooses_states ? with : without;
}

Plan plan_in_stages(const PlanRequest& request, bool chooses_states) {
  return StagedPlanner(request, chooses_states).run();
}

}  // namespace strata
