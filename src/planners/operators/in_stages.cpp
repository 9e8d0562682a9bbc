#include "planners/operators/in_stages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "cost/group_shape.hpp"
#include "partition/sample_parts.hpp"
#include "partition/shards.hpp"
#include "partition/stages.hpp"
#include "planners/operators/plan_by_operator.hpp"
#include "planners/operators/rules.hpp"
#include "planners/pipelines/pipeline.hpp"
#include "planners/states/sharded_plan.hpp"

namespace strata {
namespace {

constexpr ScheduleKind schedule = ScheduleKind::one_forward_one_backward;

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
  StagedOperators(const PlanRequest& request, Plan plan, const CostModel& costs)
      : request_(request),
        plan_(std::move(plan)),
        costs_(costs),
        stages_(cut_into_stages(request.graph, plan_.stages)),
        data_(data_grid(plan_.mesh)),
        samples_(most_samples_of_rank(plan_)) {
    const auto users = stages_of_parameters(request.graph, stages_);
    for (std::size_t p = 0; p < users.size(); ++p) {
      if (users[p].size() > 1) shared_.push_back(static_cast<int>(p));
    }
    for (const Stage& stage : stages_) graphs_.push_back(std::make_unique<ModelGraph>(graph_of(request.graph, stage)));
  }

  Degrees best() {
    Degrees best = held(Hold::dp);
    if (shared_.empty() || !may_shard() || everything_replicated_) return best;
    return better(std::move(best), held(Hold::zdp));
  }

 private:
  std::int64_t capacity() const { return plan_.device_capacity_bytes; }
  bool may_shard() const { return capacity() > 0 && data_.total() > 1; }

  /// Every parameter that stages share held as @p shared.
  Degrees held(Hold shared) {
    std::deque<OperatorChoices> operators;
    std::vector<std::unique_ptr<Fitting>> fittings;
    ChoiceOptions choices = choice_options(request_);
    choices.pinned = shared_;
    choices.pinned_hold = shared;
    for (const auto& graph : graphs_) operators.emplace_back(*graph, plan_, costs_, choices);
    for (const OperatorChoices& of_stage : operators) {
      fittings.push_back(std::make_unique<Fitting>(of_stage, fitting_options(request_)));
    }
    std::vector<Found> found;
    for (const auto& of_stage : fittings) found.push_back(of_stage->replicated(samples_));
    Degrees result = joined(operators, found);
    everything_replicated_ = shared == Hold::dp && result.fits;
    if (result.fits || !may_shard()) return result;
    // What the replicas' Programs need more is what others need more, or nothing is: each leads to plans of its own.
    std::vector<std::int64_t> differences;
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      differences.push_back(peaks_[s] - closed_form(operators, found, s));
    }
    Degrees from_replicas = fitted(operators, fittings, differences);
    Degrees from_nothing = fitted(operators, fittings, std::vector<std::int64_t>(stages_.size(), 0));
    return better(std::move(from_replicas), std::move(from_nothing));
  }

  /// What fits before what does not, then the faster; of what does not fit the smaller.
  static Degrees better(Degrees a, Degrees b) {
    const auto worth = [](const Degrees& d) {
      return std::pair(!d.fits, d.fits ? d.seconds : static_cast<double>(d.peak_bytes));
    };
    return worth(b) < worth(a) ? std::move(b) : std::move(a);
  }

  /// How far a stage is: by how much its capacity is lowered for the closed form, because its Program needs that much
  /// more, and what came of it.
  struct Progress {
    std::int64_t correction = 0;
    std::optional<std::int64_t> fitting, failing;
    std::optional<Found> best;  ///< that fits
    bool is_done = false;
  };

  /// One Program tells of all stages. Each stage's correction is halved between one that fits and one that does not;
  /// the plan that needs least has the last word. @param corrections by stage: the first.
  Degrees fitted(const std::deque<OperatorChoices>& operators, std::span<const std::unique_ptr<Fitting>> fittings,
                 const std::vector<std::int64_t>& corrections) {
    constexpr int most_programs = 5;
    std::vector<Progress> stages(stages_.size());
    for (std::size_t s = 0; s < stages_.size(); ++s) stages[s].correction = corrections[s];
    const auto is_done = [](const Progress& stage) { return stage.is_done; };
    for (int i = 0; i < most_programs && !std::ranges::all_of(stages, is_done); ++i) {
      std::vector<Found> found;
      for (std::size_t s = 0; s < stages_.size(); ++s) {
        found.push_back(next(stages[s], *fittings[s], capacity() - in_flight_bytes(operators[s], s)));
      }
      joined(operators, found);
      for (std::size_t s = 0; s < stages_.size(); ++s) {
        if (!stages[s].is_done) learn(stages[s], found[s], peaks_[s], closed_form(operators, found, s));
      }
    }
    std::vector<Found> found;
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      found.push_back(stages[s].best ? std::move(*stages[s].best) : fittings[s]->least(samples_));
    }
    return joined(operators, found);
  }

  /// What a stage is to be looked at with. @param room of its closed form, before any correction.
  Found next(Progress& stage, Fitting& fitting, std::int64_t room) const {
    while (!stage.is_done) {
      if (std::optional<Found> found = fitting.fit(samples_, room - stage.correction)) return std::move(*found);
      // Too much is taken away: less than this, and more than what did not fit, may leave something.
      stage.is_done = !stage.failing || stage.correction - *stage.failing <= close_enough();
      if (!stage.is_done) stage.correction = std::midpoint(*stage.failing, stage.correction);
    }
    return stage.best ? *stage.best : fitting.least(samples_);
  }

  void learn(Progress& stage, const Found& found, std::int64_t peak, std::int64_t closed_form) const {
    const std::int64_t difference = peak - closed_form;
    if (peak <= capacity()) {
      stage.fitting = stage.correction;
      if (!stage.best || found.answer.seconds < stage.best->answer.seconds) stage.best = found;
    } else {
      stage.failing = stage.correction;
    }
    if (stage.fitting && stage.failing) {
      stage.is_done = *stage.fitting - *stage.failing <= close_enough();
      stage.correction = std::midpoint(*stage.failing, *stage.fitting);
    } else if (stage.failing) {
      stage.correction = std::max(difference, stage.correction + peak - capacity());
    } else {
      stage.is_done = difference >= stage.correction - close_enough();
      stage.correction = difference;
    }
  }
  std::int64_t close_enough() const { return capacity() / 4096; }

  std::int64_t closed_form(const std::deque<OperatorChoices>& operators, const std::vector<Found>& found,
                           std::size_t stage) const {
    return found[stage].peak_bytes + in_flight_bytes(operators[stage], stage);
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
      peaks_.push_back(closed_form(operators, found, s));
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
  std::vector<Stage> stages_;
  Factor data_;
  std::int64_t samples_;  ///< of a micro-batch, of the rank that has most
  std::vector<int> shared_;
  std::vector<std::unique_ptr<ModelGraph>> graphs_;  ///< by stage
  std::vector<std::int64_t> peaks_;                  ///< by stage, of the last plan
  bool everything_replicated_ = false;
};

class StagedPlanner {
 public:
  explicit StagedPlanner(const PlanRequest& request) : request_(request) {}

  Plan run() {
    const auto tensor = request_.option<std::int64_t>("tensor");
    if (tensor > 1) {
      throw Unsupported(fmt::format(
          "{} on {} ranks: tensor = {}: states are chosen for whole weights alone; strategy.name = 3d has tensor ranks",
          request_.base.strategy, num_ranks(), tensor));
    }
    const auto asked = request_.option<std::int64_t>("stages");
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
      all.push_back(StagedOperators(request_, std::move(plan), *costs).best());
    }
    return best_of_all(std::move(all));
  }

 private:
  int num_ranks() const { return request_.base.mesh.num_ranks(); }

  Plan candidate(std::int64_t stages) const {
    Plan plan = pipeline_plan(request_, schedule, stages);
    data_grid(plan.mesh);  // refuses what is none
    plan.optimizer.sharding = "intra_tensor";
    plan.optimizer.spread = "all_gather";
    plan.gathered_after_recompute = "regather";
    if (request_.option<bool>("sdp")) plan.optimizer.gradients = "reduce_scatter";
    set_overlap(plan, request_.option<std::string>("overlap"));
    return plan;
  }

  /// Every number of stages for which the model has blocks and which divides the ranks.
  std::vector<Plan> all_candidates() const {
    std::vector<Plan> plans;
    std::string why;
    for (int stages = 1; stages <= num_ranks(); ++stages) {
      if (num_ranks() % stages != 0) continue;
      try {
        plans.push_back(candidate(stages));
      } catch (const Unsupported& refusal) {
        if (why.empty()) why = refusal.what();
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
      throw OutOfMemory(fmt::format("{} on {} ranks: nothing fits into a device memory of {} ({} bytes): {}",
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
};

std::vector<OptionRow> rows_of_stages() {
  std::vector<OptionRow> rows = {
      {"stages", std::int64_t{0}, ">= 0", "stages of the pipeline; 0: searched together with the data degree"},
      {"tensor", std::int64_t{1}, ">= 1",
       "tensor-parallel ranks of a stage; 1, since states are chosen for whole weights alone"},
      pipeline_options()[1],
  };
  const auto of_states = operator_options(true);
  rows.insert(rows.end(), of_states.begin(), of_states.end());
  return rows;
}

}  // namespace

std::span<const OptionRow> staged_options() {
  static const std::vector<OptionRow> rows = rows_of_stages();
  return rows;
}

Plan plan_in_stages(const PlanRequest& request) { return StagedPlanner(request).run(); }

}  // namespace strata
