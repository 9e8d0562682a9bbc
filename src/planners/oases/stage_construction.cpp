#include "planners/oases/stage_construction.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/ceil_div.hpp"
#include "base/dtype.hpp"
#include "base/error.hpp"
#include "partition/sample_parts.hpp"
#include "partition/stages.hpp"
#include "planners/missing_costs.hpp"
#include "planners/pipelines/stage_cuts.hpp"

namespace strata {
namespace {

/// Of a plan whose stages are one a place.
class ChainOfStages {
 public:
  ChainOfStages(const PlanRequest& request, const Plan& plan)
      : request_(request), plan_(plan), points_(cut_points(request.graph, plan.stages.cut_at)) {}

  /// @throws Unsupported where lowering refuses.
  StageChain chain() const {
    StageChain chain{.seconds = seconds_of_pieces(), .micro_batches = plan_.schedule.micro_batches};
    for (int stage = 0; stage < plan_.stages.count; ++stage) {
      std::vector<double>& of_stage = chain.messages.emplace_back();
      for (const int begin : points_) of_stage.push_back(stage > 0 && begin > 0 ? messages(begin, stage) : 0.0);
    }
    return chain;
  }

 private:
  std::vector<double> seconds_of_pieces() const {
    Plan alone = plan_;
    alone.mesh = mesh_of_stage(plan_.mesh);
    alone.stages = {};
    alone.global_batch = samples_of_micro_batch(plan_);
    alone.schedule.micro_batches = 1;
    alone.schedule.kind = ScheduleKind::simultaneous;
    const PricedStep step = request_.evaluate->price(alone, request_.graph);
    if (!step.missing.empty()) throw Unsupported(step.missing);
    std::map<std::string, double, std::less<>> by_operator;
    for (const PricedInstruction& in : step.instructions) {
      const bool is_pass = in.phase == Phase::forward || in.phase == Phase::recompute || in.phase == Phase::backward;
      if (is_pass) by_operator[in.name.substr(0, in.name.find('/'))] += in.seconds;
    }
    std::vector<double> seconds(points_.size());
    std::size_t piece = 0;
    for (std::size_t o = 0; o < request_.graph.operators.size(); ++o) {
      if (piece + 1 < points_.size() && static_cast<int>(o) == points_[piece + 1]) ++piece;
      const auto found = by_operator.find(request_.graph.operators[o].name);
      if (found != by_operator.end()) seconds[piece] += found->second;
    }
    return seconds;
  }

  /// To a stage that begins with operator @p begin, and back. Of the ranks that share a sample each sends the whole.
  double messages(int begin, int stage) const {
    std::int64_t elements = 0;
    for (const int t : tensors_across(request_.graph, begin)) {
      elements += request_.graph.tensors[static_cast<std::size_t>(t)].elements_per_sample();
    }
    const std::int64_t samples = ceil_div(samples_of_micro_batch(plan_), std::int64_t{groups_before(begin)});
    const int ranks = plan_.mesh.num_ranks() / plan_.stages.count;
    return 2.0 * request_.evaluate->message_seconds(plan_.mesh, (stage - 1) * ranks, stage * ranks,
                                                    elements * samples * size_of(plan_.dtypes.compute));
  }

  /// Of ranks with samples of their own, in the layer before operator @p begin.
  int groups_before(int begin) const {
    for (int o = begin; o-- > 0;) {
      if (const auto& layout = decisions_[static_cast<std::size_t>(o)].layout) return layout->p0.total();
    }
    return 1;
  }

  const PlanRequest& request_;
  const Plan& plan_;
  std::vector<int> points_;
  std::vector<OperatorDecision> decisions_ = resolve(plan_, request_.graph);
};

/// Equally many pieces a stage, or one more.
std::vector<int> equal_cut(int pieces, int stages) {
  std::vector<int> begins;
  for (int s = 0; s < stages; ++s) begins.push_back(s * pieces / stages);
  return begins;
}

std::string asked_construction(const PlanRequest& request) {
  const auto asked = request.options.find("stage_construction");
  return asked == request.options.end() ? "cut_by" : std::get<std::string>(asked->second);
}

/// @throws Unsupported for auto of interleaved stages.
void refuse_interleaved(const PlanRequest& request) {
  if (asked_construction(request) != "auto" || request.option<std::string>("schedule") != "interleaved") return;
  throw Unsupported(
      fmt::format("{} with stages = {} on {} ranks: stage_construction = \"auto\" with schedule = \"interleaved\", "
                  "chunks = {}: its "
                  "dynamic program has one stage a place; accepted: 1f1b, gpipe, or \"uniform\"",
                  request.base.strategy, request.option<std::int64_t>("stages"), request.base.mesh.num_ranks(),
                  request.option<std::int64_t>("chunks")));
}

}  // namespace

OptionRow stage_construction_option() {
  return {
      "stage_construction", std::string("cut_by"), "cut_by | uniform | auto",
      "which blocks a stage has: as cut_by says; equally many; or, of both and what a dynamic program over all cuts "
      "finds, those with the fastest step"};
}

std::vector<std::int64_t> asked_stage_counts(const PlanRequest& request) {
  const auto asked = request.option<std::int64_t>("stages");
  if (asked > 0) return {asked};
  refuse_interleaved(request);
  const bool is_interleaved = request.option<std::string>("schedule") == "interleaved";
  const std::int64_t chunks = is_interleaved ? request.option<std::int64_t>("chunks") : 1;
  const Mesh& mesh = request.base.mesh;
  std::vector<std::int64_t> counts = {1};
  for (int places = 2; places < mesh.num_ranks(); ++places) {
    const bool is_even = mesh.num_ranks() % places == 0 && cuts_evenly(mesh, places);
    if (is_even && places * chunks <= std::ssize(request.graph.blocks)) counts.push_back(places * chunks);
  }
  return counts;
}

std::vector<StageConstruction> stage_constructions(const PlanRequest& request, const Plan& plan) {
  const std::string asked = asked_construction(request);
  const Stages& stages = plan.stages;
  if (asked == "cut_by" || stages.count == 1) return {StageConstruction{}};
  const std::vector<int> points = cut_points(request.graph, stages.cut_at);
  std::vector<StageConstruction> all;
  std::set<std::vector<int>> known;  // operators that stages begin with
  const auto add = [&](std::string how, const std::vector<int>& begins) {
    StageConstruction& added = all.emplace_back(StageConstruction{.how = std::move(how)});
    std::vector<int> operators;
    for (std::size_t s = 1; s < begins.size(); ++s) {
      operators.push_back(points[static_cast<std::size_t>(begins[s])]);
      added.begins.push_back(request.graph.operators[static_cast<std::size_t>(operators.back())].name);
    }
    if (!known.insert(operators).second) all.pop_back();
  };
  const std::vector<int> equal = equal_cut(static_cast<int>(points.size()), stages.count);
  if (asked == "uniform") {
    add("of equally many blocks", equal);
    return all;
  }
  refuse_interleaved(request);
  if (request.evaluate == nullptr || !request.evaluate->knows_seconds()) {
    refuse_without_costs(request, "what kernels and collectives take, to cut stages by them",
                         "set strategy.stage_construction to uniform or cut_by");
  }
  add("by dynamic programming", fastest_cut(ChainOfStages(request, plan).chain()));
  add("of equally many blocks", equal);
  std::vector<int> by_cost;
  for (const Stage& stage : cut_into_stages(request.graph, stages)) {
    by_cost.push_back(static_cast<int>(std::ranges::find(points, stage.first_operator) - points.begin()));
  }
  add("by " + stages.cut_by, by_cost);
  return all;
}

}  // namespace strata
