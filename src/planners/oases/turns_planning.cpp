#include "planners/oases/turns_planning.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <exception>
#include <utility>
#include <vector>

#include "base/at_once.hpp"
#include "base/error.hpp"
#include "planners/missing_costs.hpp"
#include "planners/oases/planned_degrees.hpp"
#include "planners/oases/stage_construction.hpp"
#include "planners/oases/turns.hpp"
#include "planners/oases/ways_to_cut.hpp"
#include "planners/states/sharded_plan.hpp"

namespace strata {
namespace {

constexpr std::int64_t most_sub_batches = 4;

/// As many stages as are asked for, or one of the numbers that are looked at.
struct AskedStages {
  AskedStages(PlanRequest asked, std::int64_t count) : request(with_count(std::move(asked), count)) {}
  static PlanRequest with_count(PlanRequest asked, std::int64_t count) {
    asked.options.insert_or_assign("stages", count);
    return asked;
  }
  PlanRequest request;
  LayoutPlanning planning{request, {}, MatmulAlgorithm::local, PartialSums::all_reduce};
};

struct Candidate {
  WayToCut way;
  int sub_batches = 1;
  std::vector<bool> keeps{};  ///< by operator: it is not computed again; empty: none is kept
  std::string binding{};      ///< by the chain
  const LayoutPlanning* planning = nullptr;
  Plan plan{};
  double seconds = 0.0;  ///< a step, or what its collectives take; 0: unknown
  std::int64_t peak_bytes = 0;
};

std::vector<int> asked_sub_batches(const PlanRequest& request) {
  const auto asked = request.option<std::int64_t>("sub_batches");
  if (asked > 0) return {static_cast<int>(asked)};
  std::vector<int> all;
  for (int s = 1; s <= most_sub_batches; ++s) all.push_back(s);
  return all;
}

/// @param one_for_all why nodes are not planned; empty: they are. @throws Unsupported where recomputation is to be
/// selected and cannot be.
void refuse_to_select(const PlanRequest& request, const std::string& one_for_all) {
  if (!request.option<bool>("selective")) return;
  const auto refuse = [&](const std::string& what) {
    throw Unsupported(fmt::format("{} on {} ranks: selective = true with {}", request.base.strategy,
                                  request.base.mesh.num_ranks(), what));
  };
  if (!one_for_all.empty()) refuse(one_for_all);
  if (!request.option<bool>("fine_recompute")) refuse("fine_recompute = false: layers are recomputed as a whole");
  if (request.option<std::string>("search") == "authors") refuse("search = authors, which chooses degrees alone");
}

/// Why one degree holds for all nodes, or degrees are given; empty: each node has a degree of its own.
std::string not_planned_by_nodes(const PlanRequest& request, const LayoutPlanning& planning,
                                 const std::vector<WayToCut>& possible) {
  if (!request.option<bool>("planner")) return "planner = false";
  if (possible.size() == 1) return possible.front().name + " alone is possible, or was asked for";
  if (planning.num_places() > 1) return fmt::format("{} stages, whose chains are not planned", planning.num_places());
  const bool simulates = request.evaluate != nullptr && request.evaluate->knows_seconds();
  return simulates && planning.knows_seconds() ? "" : "nobody knows what kernels and collectives take";
}

Plan plan_of_part(const PlanRequest& part, const LayoutPlanning& planning, const NodePlan& nodes, int sub_batches) {
  return in_turns(part, planning.with_rules(nodes.layouts), nodes.keeps, sub_batches);
}

/// @param possible uniform degrees, or what was asked for.
std::vector<Candidate> candidates(const PlanRequest& request, const LayoutPlanning& planning,
                                  std::vector<WayToCut> possible, const std::vector<int>& sub_batches) {
  const PlanOfPart plan_of = plan_of_part;
  const std::string one_for_all = not_planned_by_nodes(request, planning, possible);
  const bool plans_nodes = one_for_all.empty();
  refuse_to_select(request, one_for_all);
  std::vector<Candidate> all;
  for (const int s : sub_batches) {
    std::vector<WayToCut> of_enough_samples;
    for (const WayToCut& way : possible) {
      if (too_few_samples(planning, way, s).empty()) of_enough_samples.push_back(way);
    }
    if (!plans_nodes || of_enough_samples.size() == 1) {
      for (WayToCut& way : of_enough_samples) all.push_back({.way = std::move(way), .sub_batches = s});
    } else if (!of_enough_samples.empty()) {
      const std::vector<Factor> tensors = tensors_of(of_enough_samples);
      for (PlannedDegrees& found : DegreePlanning(request, planning, tensors, plan_of).ways(s)) {
        all.push_back({.way = {std::move(found.name), std::move(found.nodes.layouts)},
                       .sub_batches = s,
                       .keeps = std::move(found.nodes.keeps),
                       .binding = std::move(found.binding)});
      }
    }
  }
  // Where the chain has nothing that fits, the least of the uniform ones says what is missing.
  if (all.empty()) {
    for (WayToCut& way : possible) all.push_back({.way = std::move(way), .sub_batches = sub_batches.front()});
  }
  for (Candidate& c : all) {
    c.planning = &planning;
    c.plan = in_turns(request, planning.with_rules(c.way.layouts), c.keeps, c.sub_batches);
    if (sub_batches.size() > 1) c.way.name += fmt::format(", {} sub-batches", c.sub_batches);
  }
  return all;
}

/// Each as often as there are cuts into stages to choose between.
std::vector<Candidate> with_stages(const PlanRequest& request, std::vector<Candidate> candidates,
                                   bool searches_stages) {
  std::vector<Candidate> all;
  for (const Candidate& c : candidates) {
    for (StageConstruction& construction : stage_constructions(request, c.plan)) {
      Candidate& in_stages = all.emplace_back(c);
      in_stages.plan.stages.begins = std::move(construction.begins);
      if (construction.how.empty() && !searches_stages) continue;
      const int count = c.plan.stages.count;
      in_stages.way.name += fmt::format(", {} stage{}", count, count == 1 ? "" : "s");
      if (!construction.how.empty()) in_stages.way.name += " " + construction.how;
    }
  }
  return all;
}

/// What is known of a candidate, by its Programs where they can be asked.
void price(const PlanRequest& request, Candidate& c) {
  if (request.evaluate == nullptr) {
    c.peak_bytes = c.planning->peak(c.way.layouts).bytes;
  } else {
    const Evaluation found =
        request.evaluate->knows_seconds() ? (*request.evaluate)(c.plan) : request.evaluate->memory(c.plan);
    if (found.peak_bytes == 0 && !found.missing.empty()) throw Unsupported(found.missing);
    c.seconds = found.step_seconds;
    c.peak_bytes = found.peak_bytes;
  }
  if (c.seconds == 0.0 && c.planning->knows_seconds()) c.seconds = c.planning->seconds(c.way.layouts);
}

/// Of those that fit.
Plan fastest(const PlanRequest& request, std::vector<Candidate> candidates) {
  const std::int64_t capacity = request.base.device_capacity_bytes;
  const bool simulates = request.evaluate != nullptr && request.evaluate->knows_seconds();
  if (candidates.size() > 1 && !simulates && !candidates.front().planning->knows_seconds()) {
    refuse_without_costs(request, "what collectives take, to compare degrees", "set strategy.tensor");
  }
  at_once(candidates.size(), static_cast<std::size_t>(request.num_threads),
          [&](std::size_t c) { price(request, candidates[c]); });
  std::ranges::stable_sort(candidates, {}, &Candidate::seconds);
  const auto fits = [&](const Candidate& c) { return capacity == 0 || c.peak_bytes <= capacity; };
  const auto best = std::ranges::find_if(candidates, fits);
  if (best == candidates.end()) {
    const Candidate& least = *std::ranges::min_element(candidates, {}, &Candidate::peak_bytes);
    throw OutOfMemory(fmt::format("{}: {}, which needs least, needs {}, {} bytes too much", nothing_fits(request.base),
                                  least.way.name, gib(least.peak_bytes), least.peak_bytes - capacity));
  }
  const auto described = [&](const Candidate& c) {
    const char* what = simulates ? "a simulated step" : "of collectives";
    return fmt::format("{}: {:.6g} s {}, {}", c.way.name, c.seconds, what, gib(c.peak_bytes));
  };
  Plan plan = best->plan;
  plan.why = {.predicted_seconds = simulates ? best->seconds : 0.0,
              .predicted_peak_bytes = best->peak_bytes,
              .binding = best->way.name,
              .runner_up = {}};
  if (!best->binding.empty()) {
    plan.why.binding += "; " + best->binding;
  } else if (best != candidates.begin()) {
    plan.why.binding +=
        fmt::format("; binds memory: {}; does not fit: {}", gib(capacity), described(candidates.front()));
  } else if (candidates.size() > 1) {
    plan.why.binding += "; binds nothing: the fastest degree fits";
  }
  const auto second = std::find_if(std::next(best), candidates.end(), fits);
  if (second != candidates.end()) plan.why.runner_up = described(*second);
  return plan;
}

}  // namespace

PlanRequest with_options(PlanRequest request, const std::map<std::string, OptionValue>& others) {
  request.options.insert(others.begin(), others.end());
  return request;
}

Plan plan_in_turns(const PlanRequest& request) {
  const std::vector<int> sub_batches = asked_sub_batches(request);
  const std::vector<std::int64_t> counts = asked_stage_counts(request);
  const bool searches_stages = counts.size() > 1;
  if (searches_stages && (request.evaluate == nullptr || !request.evaluate->knows_seconds())) {
    refuse_without_costs(request, "what kernels and collectives take, to compare numbers of stages",
                         "set strategy.stages");
  }
  std::deque<AskedStages> asked;
  std::vector<Candidate> all;
  std::exception_ptr refusal;
  for (const std::int64_t count : counts) {
    try {
      const auto& [in_stages, planning] = asked.emplace_back(request, count);
      std::vector<Candidate> found =
          candidates(in_stages, planning, possible_ways(in_stages, planning, sub_batches.front()), sub_batches);
      for (Candidate& c : with_stages(in_stages, std::move(found), searches_stages)) all.push_back(std::move(c));
    } catch (const CostsUnknown&) {
      throw;
    } catch (const Unsupported&) {
      if (!refusal) refusal = std::current_exception();
    }
  }
  if (all.empty()) std::rethrow_exception(refusal);
  return fastest(request, std::move(all));
}

std::string linear_program_in_turns(const PlanRequest& request) {
  if (request.option<std::int64_t>("stages") == 0) {
    throw Unsupported(fmt::format("{} has no linear program here: stages = 0, and only a chain in one stage has one",
                                  request.base.strategy));
  }
  const LayoutPlanning planning(request, {}, MatmulAlgorithm::local, PartialSums::all_reduce);
  const int sub_batches = asked_sub_batches(request).back();
  const std::vector<WayToCut> ways = possible_ways(request, planning, sub_batches);
  const std::string chosen = not_planned_by_nodes(request, planning, ways);
  if (!chosen.empty()) {
    throw Unsupported(fmt::format("{} has no linear program here: {}", request.base.strategy, chosen));
  }
  const std::vector<Factor> tensors = tensors_of(ways);
  const PlanOfPart plan_of = plan_of_part;
  return DegreePlanning(request, planning, tensors, plan_of).linear_program(sub_batches);
}

}  // namespace strata
