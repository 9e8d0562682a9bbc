#include "planners/operators/in_stages.hpp"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "base/ceil_div.hpp"
#include "cost/group_shape.hpp"
#include "partition/pipeline_passes.hpp"
#include "partition/sample_parts.hpp"
#include "partition/shards.hpp"
#include "partition/stages.hpp"
#include "partition/stages_of_places.hpp"
#include "planners/layouts/degrees_of_layers.hpp"
#include "planners/operators/plan_by_operator.hpp"
#include "planners/operators/rules.hpp"
#include "planners/states/factors.hpp"
#include "planners/states/sharded_plan.hpp"

namespace strata {
namespace {

constexpr int slices_of_planner = -1;

/// A matrix that @p tensor ranks share as large as the part of one of them.
ModelGraph part_of_tensor_rank(ModelGraph graph, int tensor) {
  for (Parameter& parameter : graph.parameters) {
    if (parameter.shape.size() > 1) parameter.shape.front() = ceil_div(parameter.shape.front(), std::int64_t{tensor});
  }
  return graph;
}

/// The places of one plan, each with its own operators and memory.
class StagedOperators {
 public:
  /// @param plan mesh, stages, schedule and layouts; no rules of states yet.
  /// @param wanted of peaks: which Programs say that what is taken fits.
  StagedOperators(const PlanRequest& request, const ParallelDegrees& degrees, const Plan& plan, const CostModel& costs,
                  const StatesWanted& wanted)
      : request_(request),
        degrees_(degrees),
        plan_(plan),
        costs_(costs),
        last_word_(wanted.peaks),
        most_seconds_(wanted.most_seconds),
        stages_(cut_into_stages(request.graph, plan.stages)),
        grid_(data_grid(plan.mesh)),
        copies_(degrees.tensor > 1 ? quotient(grid_, nearest_ranks(grid_, degrees.tensor)) : grid_),
        samples_(ceil_div(samples_of_micro_batch(plan), std::int64_t{copies_.total()})),
        samples_computed_(ceil_div(samples_, std::int64_t{degrees.tensor})) {
    const StagePlaces places(plan_);
    const auto users = stages_of_parameters(request.graph, stages_);
    for (std::size_t p = 0; p < users.size(); ++p) {
      if (places.places_of(users[p]).size() > 1) shared_.push_back(static_cast<int>(p));
    }
    std::vector<int> sharing;  // operators
    for (std::size_t o = 0; o < request.graph.operators.size(); ++o) {
      const bool shares = std::ranges::any_of(request.graph.operators[o].parameters, [&](int parameter) {
        return std::ranges::find(shared_, parameter) != shared_.end();
      });
      if (shares) sharing.push_back(static_cast<int>(o));
    }
    for (int place = 0; place < places.num_places(); ++place) {
      const StagesOfPlace held = places.of(place);
      std::vector<Stage> here;
      for (int s = held.first; s < held.end; s += held.apart) here.push_back(stages_[static_cast<std::size_t>(s)]);
      graphs_.push_back(
          std::make_unique<ModelGraph>(part_of_tensor_rank(graph_of(request.graph, here), degrees.tensor)));
      std::vector<int>& operators = operators_.emplace_back();
      for (const Stage& stage : here) {
        for (int o = stage.first_operator; o < stage.end(); ++o) operators.push_back(o);
      }
      operators.insert(operators.end(), sharing.begin(), sharing.end());
    }
  }

  /// See states_in_stages().
  std::vector<PlanWithStates> plans() {
    ChoiceOptions asked = choice_options(request_);
    asked.sharded_over = copies_;
    asked.slices = slices_by_degrees(request_, degrees_);
    if (std::optional<PlanWithStates> too_large = smallest_if_too_large(asked)) return {*std::move(too_large)};
    std::vector<PlanWithStates> all = {best(asked)};
    const bool simulates = request_.evaluate != nullptr && request_.evaluate->knows_seconds();
    // Whole operators leave fewer choices.
    if (!simulates || everything_replicated_ || !may_shard() || all.front().seconds > most_seconds_) return all;
    ChoiceOptions whole = asked;
    whole.slices = 0;
    if (asked.slices > 1) all.push_back(best(whole));
    all.push_back(sharded(whole));
    return all;
  }

 private:
  std::int64_t capacity() const { return plan_.device_capacity_bytes; }
  bool may_shard() const { return capacity() > 0 && copies_.total() > 1; }
  bool fits(const PlanWithStates& plan) const { return capacity() == 0 || plan.peak_bytes <= capacity(); }

  PlanWithStates best(const ChoiceOptions& choices) {
    PlanWithStates best = held(choices, Hold::dp);
    if (shared_.empty() || !may_shard() || everything_replicated_) return best;
    return better(std::move(best), held(choices, Hold::zdp));
  }

  /// What each place can choose between.
  struct Choices {
    std::deque<OperatorChoices> operators;
    std::vector<std::unique_ptr<Fitting>> fittings;
  };
  /// Every parameter that places share held as @p shared.
  std::unique_ptr<Choices> choices_of(ChoiceOptions options, Hold shared) const {
    auto all = std::make_unique<Choices>();
    options.pinned = shared_;
    options.pinned_hold = shared;
    for (const auto& graph : graphs_) all->operators.emplace_back(*graph, plan_, costs_, options);
    for (const OperatorChoices& of_place : all->operators) {
      all->fittings.push_back(std::make_unique<Fitting>(of_place, fitting_options(request_)));
    }
    return all;
  }

  /// By Programs of few blocks: nothing where one of the smallest plans may fit, or nobody lowers.
  std::optional<PlanWithStates> smallest_if_too_large(const ChoiceOptions& options) {
    if (capacity() == 0 || request_.evaluate == nullptr) return std::nullopt;
    const auto all = choices_of(options, Hold::zdp);
    std::vector<std::vector<Found>> smallest;  // by place
    std::size_t most = 0;
    for (const auto& of_place : all->fittings) {
      most = std::max(most, smallest.emplace_back(of_place->smallest(samples_computed_)).size());
    }
    std::optional<PlanWithStates> least;
    for (std::size_t i = 0; i < most; ++i) {
      std::vector<Found> found;
      for (const auto& of_place : smallest) found.push_back(of_place[std::min(i, of_place.size() - 1)]);
      PlanWithStates plan = with_rules(all->operators, found);
      const std::vector<std::int64_t> peaks = program_peaks(plan.plan, PeaksOf::few);
      plan.peak_bytes = peaks.empty() ? 0 : *std::ranges::max_element(peaks);
      if (plan.peak_bytes <= capacity()) return std::nullopt;
      if (!least || plan.peak_bytes < least->peak_bytes) least = std::move(plan);
    }
    return least;
  }

  /// All operators whole, and all sharded.
  PlanWithStates sharded(const ChoiceOptions& options) {
    const auto all = choices_of(options, Hold::zdp);
    std::vector<Found> found;
    for (const auto& of_place : all->fittings) found.push_back(of_place->sharded(samples_computed_));
    return joined(all->operators, found);
  }

  PlanWithStates held(const ChoiceOptions& options, Hold shared) {
    const auto all = choices_of(options, shared);
    const auto& operators = all->operators;
    const auto& fittings = all->fittings;
    std::vector<Found> found;
    for (const auto& of_place : fittings) found.push_back(of_place->replicated(samples_computed_));
    PlanWithStates result = joined(operators, found, PeaksOf::few);
    if (fits(result)) result = joined(operators, found);
    everything_replicated_ = shared == Hold::dp && fits(result);
    if (fits(result) || !may_shard()) return result;
    // What the replicas' Programs need more is what others need more, or nothing is: each leads to plans of its own.
    std::vector<std::int64_t> differences;
    for (std::size_t p = 0; p < graphs_.size(); ++p) {
      differences.push_back(peaks_[p] - closed_form(operators, found, p));
    }
    const auto fitted_by_all = [&](const std::vector<std::int64_t>& corrections) {
      std::vector<Progress> places(graphs_.size());
      for (std::size_t p = 0; p < graphs_.size(); ++p) places[p].correction = corrections[p];
      PlanWithStates by_few = fitted(operators, fittings, places, PeaksOf::few);
      if (fits(by_few) || by_few.seconds > most_seconds_ || last_word_ == PeaksOf::few) return by_few;
      // All Programs need no less: what few let fit is asked again, and what they do not does not fit.
      for (Progress& place : places) {
        place = {.correction = place.fitting.value_or(place.correction), .failing = place.failing};
      }
      return fitted(operators, fittings, places, PeaksOf::all);
    };
    PlanWithStates from_replicas = fitted_by_all(differences);
    PlanWithStates from_nothing = fitted_by_all(std::vector<std::int64_t>(graphs_.size(), 0));
    return better(std::move(from_replicas), std::move(from_nothing));
  }

  /// What fits before what does not, then the faster; of what does not fit the smaller.
  PlanWithStates better(PlanWithStates a, PlanWithStates b) const {
    const auto worth = [&](const PlanWithStates& p) {
      return std::pair(!fits(p), fits(p) ? p.seconds : static_cast<double>(p.peak_bytes));
    };
    return worth(b) < worth(a) ? std::move(b) : std::move(a);
  }

  /// How far a place is: by how much its capacity is lowered for the closed form, because its Program needs that much
  /// more, and what came of it.
  struct Progress {
    std::int64_t correction = 0;
    std::optional<std::int64_t> fitting, failing;
    std::optional<Found> best;  ///< that fits
    bool is_done = false;
  };

  /// One Program tells of all places. Each place's correction is halved between one that fits and one that does not;
  /// the plan that needs least has the last word.
  PlanWithStates fitted(const std::deque<OperatorChoices>& operators,
                        std::span<const std::unique_ptr<Fitting>> fittings, std::vector<Progress>& places,
                        PeaksOf lowered) {
    constexpr int most_programs = 5;
    const auto is_done = [](const Progress& place) { return place.is_done; };
    for (int i = 0; i < most_programs && !std::ranges::all_of(places, is_done); ++i) {
      std::vector<Found> found;
      for (std::size_t p = 0; p < graphs_.size(); ++p) {
        found.push_back(next(places[p], *fittings[p], capacity() - in_flight_bytes(operators[p], p)));
      }
      PlanWithStates plan = joined(operators, found, lowered);
      for (std::size_t p = 0; p < graphs_.size(); ++p) {
        // It has to share more, which takes longer.
        if (peaks_[p] > capacity() && found[p].answer.seconds > most_seconds_) return plan;
      }
      for (std::size_t p = 0; p < graphs_.size(); ++p) {
        if (!places[p].is_done) learn(places[p], found[p], peaks_[p], closed_form(operators, found, p));
      }
    }
    std::vector<Found> found;
    for (std::size_t p = 0; p < graphs_.size(); ++p) {
      found.push_back(places[p].best ? std::move(*places[p].best) : fittings[p]->least(samples_computed_));
    }
    return joined(operators, found);
  }

  /// What a place is to be looked at with. @param room of its closed form, before any correction.
  Found next(Progress& place, Fitting& fitting, std::int64_t room) const {
    while (!place.is_done) {
      if (std::optional<Found> found = fitting.fit(samples_computed_, room - place.correction))
        return std::move(*found);
      // Too much is taken away: less than this, and more than what did not fit, may leave something.
      place.is_done = !place.failing || place.correction - *place.failing <= close_enough();
      if (!place.is_done) place.correction = std::midpoint(*place.failing, place.correction);
    }
    return place.best ? *place.best : fitting.least(samples_computed_);
  }

  void learn(Progress& place, const Found& found, std::int64_t peak, std::int64_t closed_form) const {
    const std::int64_t difference = peak - closed_form;
    if (peak <= capacity()) {
      place.fitting = place.correction;
      if (!place.best || found.answer.seconds < place.best->answer.seconds) place.best = found;
    } else {
      place.failing = place.correction;
    }
    if (place.fitting && place.failing) {
      place.is_done = *place.fitting - *place.failing <= close_enough();
      place.correction = std::midpoint(*place.failing, *place.fitting);
    } else if (place.failing) {
      place.correction = std::max(difference, place.correction + peak - capacity());
    } else {
      place.is_done = difference >= place.correction - close_enough();
      place.correction = difference;
    }
  }
  std::int64_t close_enough() const { return capacity() / 4096; }

  std::int64_t closed_form(const std::deque<OperatorChoices>& operators, const std::vector<Found>& found,
                           std::size_t place) const {
    return found[place].peak_bytes + in_flight_bytes(operators[place], place);
  }

  /// Of the passes beyond those whose backward runs, one through each of the place's stages.
  std::int64_t in_flight_bytes(const OperatorChoices& operators, std::size_t place) const {
    const PlaceInPipeline here = place_in_pipeline(plan_, static_cast<int>(place));
    return (here.most_in_flight() - here.stages) * samples_computed_ * operators.kept_bytes_per_sample() / here.stages;
  }

  /// The plan of all places.
  PlanWithStates with_rules(const std::deque<OperatorChoices>& operators, const std::vector<Found>& found) const {
    PlanWithStates result{.plan = plan_};
    std::vector<OperatorRule>& said = result.plan.operators;
    said.insert(said.begin(), {.match = "*", .state = StateFactors{}});
    for (std::size_t p = 0; p < graphs_.size(); ++p) {
      const std::vector<OperatorRule> rules = rules_of(operators[p], *graphs_[p], copies_, found[p].choices);
      said.insert(said.end(), rules.begin() + 1, rules.end());  // without "*"
    }
    return result;
  }

  /// The same, with what it takes and needs.
  PlanWithStates joined(const std::deque<OperatorChoices>& operators, const std::vector<Found>& found,
                        std::optional<PeaksOf> asked = std::nullopt) {
    PlanWithStates result = with_rules(operators, found);
    const int micro_batches = plan_.schedule.micro_batches;
    double slowest = 0.0, most_computed = 0.0, message = 0.0;
    peaks_.clear();
    for (std::size_t p = 0; p < graphs_.size(); ++p) {
      slowest = std::max(slowest, found[p].answer.seconds);
      most_computed =
          std::max(most_computed, operators[p].problem().compute_seconds(samples_computed_) / micro_batches);
      message = std::max(message, message_seconds(p));
      peaks_.push_back(closed_form(operators, found, p));
    }
    const auto others = static_cast<double>(graphs_.size() - 1);
    result.seconds = slowest + others * (most_computed / degrees_.chunks + 2.0 * message);
    if (request_.evaluate != nullptr && capacity() > 0) {
      // None where it does not lower: then the closed form decides.
      if (auto peaks = program_peaks(result.plan, asked.value_or(last_word_)); !peaks.empty())
        peaks_ = std::move(peaks);
    }
    result.peak_bytes = *std::ranges::max_element(peaks_);
    return result;
  }

  /// By place; empty where it does not lower. Searches come to the same plans of a place, and lowering takes most of
  /// their time: of a place that holds its states as it did before, nothing is lowered.
  std::vector<std::int64_t> program_peaks(const Plan& plan, PeaksOf programs) {
    const std::vector<OperatorDecision> decisions = resolve(plan, request_.graph);
    std::vector<std::int64_t> peaks(graphs_.size());
    std::vector<Account> asked;
    std::vector<int> places;
    for (std::size_t p = 0; p < graphs_.size(); ++p) {
      Account account{.place = static_cast<int>(p), .programs = programs};
      for (const int o : operators_[p]) account.decisions.push_back(decisions[static_cast<std::size_t>(o)]);
      const auto known = std::ranges::find_if(accounts_, [&](const Account& other) { return other.is_of(account); });
      if (known != accounts_.end()) {
        peaks[p] = known->peak_bytes;
      } else {
        places.push_back(account.place);
        asked.push_back(std::move(account));
      }
    }
    if (asked.empty()) return peaks;
    const std::vector<std::int64_t> found = request_.evaluate->peaks_of_places(plan, places, programs);
    if (found.empty()) return {};
    for (std::size_t i = 0; i < asked.size(); ++i) {
      peaks[static_cast<std::size_t>(places[i])] = asked[i].peak_bytes = found[i];
      accounts_.push_back(std::move(asked[i]));
    }
    return peaks;
  }

  /// From the place before to place @p place.
  double message_seconds(std::size_t place) const {
    if (place == 0) return 0.0;
    std::int64_t elements = 0;
    for (const int t : tensors_across(request_.graph, stages_[place].first_operator)) {
      elements += request_.graph.tensors[static_cast<std::size_t>(t)].elements_per_sample();
    }
    const int there = static_cast<int>(place) * grid_.total();
    const std::vector<int> ends = {there - grid_.total(), there};
    return costs_
        .collective(Collective::send, elements * samples_ * size_of(plan_.dtypes.compute),
                    placement(ends, plan_.mesh.ranks_per_node))
        .seconds;
  }

  const PlanRequest& request_;
  ParallelDegrees degrees_;
  Plan plan_;
  const CostModel& costs_;
  PeaksOf last_word_;
  double most_seconds_;  ///< by closed form, of what is worth being looked at
  std::vector<Stage> stages_;
  Factor grid_;                    ///< ranks of a place
  Factor copies_;                  ///< of them, those that hold the same part of a weight
  std::int64_t samples_;           ///< of a micro-batch, of the rank that has most
  std::int64_t samples_computed_;  ///< what a rank computes and keeps of them is what so many take
  std::vector<int> shared_;
  std::vector<std::unique_ptr<ModelGraph>> graphs_;  ///< by place
  std::vector<std::vector<int>> operators_;          ///< by place: its own, and all that use a parameter of several
  /// What a place's fullest rank needs: plans of the same degrees differ by nothing else.
  struct Account {
    int place = 0;
    PeaksOf programs = PeaksOf::all;
    std::vector<OperatorDecision> decisions{};  ///< on operators_ of the place
    std::int64_t peak_bytes = 0;
    bool is_of(const Account& other) const {
      return place == other.place && programs == other.programs && decisions == other.decisions;
    }
  };
  std::vector<Account> accounts_;
  std::vector<std::int64_t> peaks_;  ///< by place, of the last plan
  bool everything_replicated_ = false;
};

std::vector<OptionRow> rows_of_stages() {
  const auto of_degrees = degree_options();
  std::vector<OptionRow> rows(of_degrees.begin(), of_degrees.end());
  rows.push_back({"slices", std::int64_t{slices_of_planner}, ">= -1 and <= 64",
                  "as of osdp; -1: 4, and of operators that tensor ranks share none"});
  const auto of_states = operator_search_options();
  rows.insert(rows.end(), of_states.begin(), of_states.end());
  return rows;
}

}  // namespace

std::span<const OptionRow> staged_options() {
  static const std::vector<OptionRow> rows = rows_of_stages();
  return rows;
}

int slices_by_degrees(const PlanRequest& request, const ParallelDegrees& degrees) {
  const auto asked = request.option<std::int64_t>("slices");
  if (degrees.tensor > 1) return 0;
  return asked == slices_of_planner ? default_slices : static_cast<int>(asked);
}

Plan with_options_of_states(const PlanRequest& request) {
  Plan plan = request.base;
  plan.optimizer.sharding = "intra_tensor";
  plan.optimizer.spread = "all_gather";
  plan.gathered_after_recompute = "regather";
  if (request.option<bool>("sdp")) plan.optimizer.gradients = "reduce_scatter";
  set_overlap(plan, request.option<std::string>("overlap"));
  return plan;
}

std::vector<PlanWithStates> states_in_stages(const PlanRequest& request, const CostModel& costs,
                                             const ParallelDegrees& degrees, const Plan& replicated,
                                             const StatesWanted& wanted) {
  return StagedOperators(request, degrees, replicated, costs, wanted).plans();
}

}  // namespace strata
