#include "planners/joint/degree_moves.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "planners/joint/decision_rules.hpp"
#include "planners/states/state_share.hpp"

namespace strata {
namespace {

/// Of the values that @p member takes in @p all where @p fits, the next ones below and above @p own.
template <typename Fits>
std::vector<int> next_values(std::span<const ParallelDegrees> all, int ParallelDegrees::*member, int own,
                             const Fits& fits) {
  std::optional<int> below, above;
  for (const ParallelDegrees& d : all) {
    const int value = d.*member;
    if (!fits(d)) continue;
    if (value < own && (!below || value > *below)) below = value;
    if (value > own && (!above || value < *above)) above = value;
  }
  std::vector<int> values;
  for (const std::optional<int>& value : {below, above}) {
    if (value) values.push_back(*value);
  }
  return values;
}

/// @param besides what else of @p plan is another than that of the plan which the move leaves.
void add(const PlanRequest& request, const Plan& plan, const ParallelDegrees& degrees, std::vector<Move>& moves,
         std::string_view besides = "") {
  try {
    moves.push_back(
        {fmt::format("{}{}", in_words(degrees, plan.mesh.num_ranks()), besides), with_degrees(request, plan, degrees)});
  } catch (const Unsupported&) {
    // No neighbour is there.
  }
}

}  // namespace

ParallelDegrees degrees_of(const Plan& plan) {
  const int places = axis_size(plan.mesh, "stage");
  const bool reduces =
      std::ranges::any_of(plan.operators, [](const OperatorRule& rule) { return rule.sum == PartialSums::all_reduce; });
  return {.places = places,
          .chunks = plan.stages.count / places,
          .tensor = most_tensor_ranks(plan),
          .sum = reduces ? PartialSums::all_reduce : PartialSums::scatter,
          .micro_batches = plan.schedule.micro_batches};
}

bool may_go_round(const OperatorDecision& d) {
  return !d.layout || d.layout->p1.total() == 1 || d.layout->p2.total() == 1;
}

Plan with_degrees(const PlanRequest& request, const Plan& plan, const ParallelDegrees& degrees) {
  ParallelDegrees own = degrees_of(plan);
  own.micro_batches = degrees.micro_batches;
  if (own == degrees) {
    Plan cut_otherwise = plan;
    cut_otherwise.schedule.micro_batches = degrees.micro_batches;
    return cut_otherwise;
  }
  PlanRequest asked = request;
  asked.base.global_batch = plan.global_batch;
  Plan made = plan_of_degrees(asked, degrees);
  made.recompute = plan.recompute;
  made.overlap = plan.overlap;
  made.optimizer = plan.optimizer;
  made.gathered_after_recompute = plan.gathered_after_recompute;
  if (has_layouts(made.mesh)) {
    made.schedule.sub_batches = plan.schedule.sub_batches;
    made.schedule.cross_pass = plan.schedule.cross_pass;
  } else if (made.recompute == Recompute::after_communication) {
    made.recompute = Recompute::block;
  }
  if (degrees.tensor == 1 || degrees.sum == PartialSums::scatter) made.overlap.layout = "none";
  const std::vector<OperatorDecision> before = resolve(plan, request.graph);
  const std::vector<Factor> copies_before = copies_of_operators(plan.mesh, before);
  std::vector<OperatorDecision> decisions = resolve(made, request.graph);
  const std::vector<Factor> copies = copies_of_operators(made.mesh, decisions);
  for (std::size_t o = 0; o < decisions.size(); ++o) {
    decisions[o].state = carried_over(before[o].state, copies_before[o], copies[o]);
    const bool goes_round = before[o].algorithm == MatmulAlgorithm::ring && degrees.sum == PartialSums::scatter;
    if (!goes_round || !may_go_round(decisions[o])) continue;
    decisions[o].algorithm = MatmulAlgorithm::ring;
    decisions[o].directions = before[o].directions;
  }
  made.operators = rules_of_decisions(request.graph, decisions, made.recompute);
  return made;
}

std::vector<Move> moves_to_tensor_degrees(const PlanRequest& request, const Plan& plan,
                                          std::span<const ParallelDegrees> all) {
  const ParallelDegrees own = degrees_of(plan);
  const auto fits = [&](const ParallelDegrees& d) {
    return d.places == own.places && d.chunks == own.chunks && d.micro_batches == own.micro_batches;
  };
  std::vector<Move> moves;
  for (const int tensor : next_values(all, &ParallelDegrees::tensor, own.tensor, fits)) {
    for (const ParallelDegrees& d : all) {
      if (fits(d) && d.tensor == tensor) add(request, plan, d, moves);
    }
  }
  return moves;
}

std::vector<Move> moves_of_stages(const PlanRequest& request, const Plan& plan, std::span<const ParallelDegrees> all) {
  const ParallelDegrees own = degrees_of(plan);
  std::vector<Move> moves;
  const auto add_next = [&](int ParallelDegrees::*member) {
    ParallelDegrees of_others = own;
    const auto fits = [&](ParallelDegrees d) {
      of_others.*member = d.*member = 0;
      of_others.sum = d.sum = own.sum;  // of one tensor rank there is one
      return d == of_others;
    };
    for (const int value : next_values(all, member, own.*member, fits)) {
      ParallelDegrees next = own;
      next.*member = value;
      add(request, plan, next, moves);
    }
  };
  add_next(&ParallelDegrees::places);
  add_next(&ParallelDegrees::chunks);
  add_next(&ParallelDegrees::micro_batches);
  // Stages instead of replicas, or the other way round, with as many samples of a micro-batch a rank: in as many
  // micro-batches as before more or less of them would be kept, and neither change alone may fit or be faster.
  const auto as_many_samples = [&](const ParallelDegrees& d) {
    return d.chunks == own.chunks && d.tensor == own.tensor && d.sum == own.sum &&
           std::int64_t{d.micro_batches} * own.places == std::int64_t{own.micro_batches} * d.places;
  };
  for (const int places : next_values(all, &ParallelDegrees::places, own.places, as_many_samples)) {
    ParallelDegrees next = own;
    next.places = places;
    next.micro_batches = static_cast<int>(std::int64_t{own.micro_batches} * places / own.places);
    add(request, plan, next, moves);
  }
  // Smaller micro-batches leave as much less to be kept as blocks that run again, and beside these are worth nothing.
  if (runs_again(plan)) {
    const Plan kept = with_recompute(request, plan, Recompute::none, static_cast<int>(request.graph.blocks.size()));
    for (const ParallelDegrees& d : all) {
      ParallelDegrees of_other = d;
      of_other.micro_batches = own.micro_batches;
      if (of_other == own && d.micro_batches > own.micro_batches) add(request, kept, d, moves, ", recompute none");
    }
  }
  // No pipeline at all: of a deep one with several stages a rank every step on the way there may be slower.
  if (own.places > 1) {
    const ParallelDegrees none{.tensor = own.tensor, .sum = own.sum, .micro_batches = own.micro_batches};
    const bool is_next = own.places == 2 && own.chunks == 1;
    if (!is_next && std::ranges::find(all, none) != all.end()) add(request, plan, none, moves);
  }
  // As many stages, of which a rank has more or fewer.
  for (const ParallelDegrees& d : all) {
    const bool is_alike = d.tensor == own.tensor && d.micro_batches == own.micro_batches && d.sum == own.sum;
    if (is_alike && d.stages() == own.stages() && d.places != own.places) add(request, plan, d, moves);
  }
  // The other order of one stage a rank: all forward passes first, of which more is held, or backward as soon as can
  // be.
  if (own.places > 1 && own.chunks == 1) {
    const bool is_gpipe = plan.schedule.kind == ScheduleKind::gpipe;
    Plan other = plan;
    other.schedule.kind = is_gpipe ? ScheduleKind::one_forward_one_backward : ScheduleKind::gpipe;
    moves.push_back({is_gpipe ? "schedule = 1f1b" : "schedule = gpipe", std::move(other)});
  }
  return moves;
}

}  // namespace strata
