#include "planners/cyclic/planned_ring.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "partition/stages.hpp"
#include "planners/cyclic/freshest_ring.hpp"

namespace strata {
namespace {

/// Without those of @p points before which and behind which operators use one parameter: its versions would differ.
std::vector<int> without_parted_parameters(const ModelGraph& graph, std::vector<int> points) {
  std::vector<int> first_use(graph.parameters.size(), -1), last_use(graph.parameters.size(), -1);
  for (std::size_t o = 0; o < graph.operators.size(); ++o) {
    for (const int p : graph.operators[o].parameters) {
      int& first = first_use[static_cast<std::size_t>(p)];
      if (first < 0) first = static_cast<int>(o);
      last_use[static_cast<std::size_t>(p)] = static_cast<int>(o);
    }
  }
  std::erase_if(points, [&](int begin) {
    for (std::size_t p = 0; p < graph.parameters.size(); ++p) {
      if (first_use[p] >= 0 && first_use[p] < begin && last_use[p] >= begin) return true;
    }
    return false;
  });
  return points;
}

/// Two micro-batches of @p plan on one rank, in one stage.
Plan on_one_rank(const Plan& plan) {
  Plan one = plan;
  one.mesh = {.axes = {{"stage", 1}, {"micro_batch", 1}}};
  one.stages = {};
  one.global_batch = plan.global_batch / plan.schedule.micro_batches * 2;
  one.schedule.micro_batches = 2;
  one.schedule.fresh = "none";
  one.device_capacity_bytes = 0;
  return one;
}

/// Two neighbours on the ring, on different nodes where there are several.
std::pair<int, int> far_neighbours(const Mesh& mesh) {
  const int first = mesh.nodes > 1 ? mesh.ranks_per_node - 1 : 0;
  return {first, std::min(first + 1, mesh.num_ranks() - 1)};
}

/// By operator or parameter, by name: the piece that it is in.
std::map<std::string, std::size_t, std::less<>> pieces_by_name(const ModelGraph& graph,
                                                               const std::vector<int>& begins) {
  std::map<std::string, std::size_t, std::less<>> pieces;
  std::size_t piece = 0;
  for (std::size_t o = 0; o < graph.operators.size(); ++o) {
    if (piece + 1 < begins.size() && static_cast<int>(o) == begins[piece + 1]) ++piece;
    const Operator& op = graph.operators[o];
    pieces.try_emplace(op.name, piece);
    for (const int p : op.parameters) pieces.try_emplace(graph.parameters[static_cast<std::size_t>(p)].name, piece);
  }
  return pieces;
}

void price_kernels(const PlanRequest& request, const Plan& plan, PricedRing& ring) {
  const PricedStep step = request.evaluate->price(on_one_rank(plan), request.graph);
  if (!step.missing.empty()) throw Unsupported(step.missing);
  const auto pieces = pieces_by_name(request.graph, ring.begins);
  constexpr double steps = 2.0;  // of a body with two versions of the parameters
  for (const PricedInstruction& in : step.instructions) {
    if (in.is_collective) continue;
    const auto found = pieces.find(in.name);
    RingPiece& piece = ring.problem.pieces[found == pieces.end() ? 0 : found->second];  // 0: what loads the input
    const double seconds = in.seconds / steps;
    switch (in.phase) {
      case Phase::update: piece.update += seconds; break;
      case Phase::reduce: piece.addition += seconds; break;
      case Phase::recompute:
      case Phase::backward: piece.backward += in.micro_batch == 1 ? seconds : 0.0; break;
      default: piece.forward += in.micro_batch == 1 ? seconds : 0.0; break;
    }
  }
}

std::string in_words(const RingChoice& choice, const std::vector<std::string>& begins, std::size_t num_reads) {
  return fmt::format("{:.4g} s a step, {} of {} reads fresh ({}), stages from {}", choice.period_seconds,
                     choice.num_fresh, num_reads, fmt::join(choice.fresh, " "), fmt::join(begins, ", "));
}

}  // namespace

PricedRing priced_ring(const PlanRequest& request, const Plan& plan) {
  const ModelGraph& graph = request.graph;
  if (request.evaluate == nullptr || !request.evaluate->knows_seconds()) {
    throw CostsUnknown(fmt::format(
        "{} on {} ranks: fresh = planner compares what steps take, and nobody knows that of cluster {}: name one that "
        "is described, or have a profile, or set strategy.fresh = \"v2\"",
        plan.strategy, plan.mesh.num_ranks(), request.cluster.name.empty() ? "(unnamed)" : request.cluster.name));
  }
  PricedRing ring{.begins = without_parted_parameters(graph, cut_points(graph, plan.stages.cut_at))};
  if (std::ssize(ring.begins) < plan.stages.count) {
    throw Unsupported(
        fmt::format("{}: {} stages, but between operators of {} that share no parameter only {} can "
                    "begin",
                    plan.strategy, plan.stages.count, graph.name, ring.begins.size()));
  }
  RingProblem& problem = ring.problem;
  problem.pieces.resize(ring.begins.size());
  problem.schedule = plan.schedule;
  problem.num_stages = plan.stages.count;
  problem.within = request.option<double>("within");
  price_kernels(request, plan, ring);
  const auto pieces = pieces_by_name(graph, ring.begins);
  for (const Parameter& parameter : graph.parameters) {
    RingPiece& piece = problem.pieces[pieces.at(parameter.name)];
    piece.gradient_bytes += parameter.num_elements() * size_of(plan.dtypes.gradient);
    piece.parameter_bytes += parameter.num_elements() * size_of(plan.dtypes.compute);
  }
  problem.message_seconds = [evaluate = request.evaluate, mesh = plan.mesh](std::int64_t bytes) {
    const auto [from, to] = far_neighbours(mesh);
    return from == to ? 0.0 : evaluate->message_seconds(mesh, from, to, bytes);
  };
  return ring;
}

Plan planned_ring(const PlanRequest& request, Plan plan) {
  const PricedRing ring = priced_ring(request, plan);
  const FreshestRing found = freshest_ring(ring.problem);
  const auto names = [&](const RingChoice& choice) {
    std::vector<std::string> all;
    for (std::size_t j = 1; j < choice.cut.size(); ++j) {
      const int first = ring.begins[static_cast<std::size_t>(choice.cut[j])];
      all.push_back(request.graph.operators[static_cast<std::size_t>(first)].name);
    }
    return all;
  };
  const std::size_t num_reads = found.best.fresh.size() * found.best.cut.size();
  // The bound adds up the same seconds in another order: where it is met it may be above the period by rounding.
  const double gap = std::max(0.0, found.least_period_seconds / found.period_bound_seconds - 1.0);
  plan.stages.begins = names(found.best);
  plan.schedule.fresh = fmt::format("{}", fmt::join(found.best.fresh, " "));
  plan.why.predicted_seconds = found.best.period_seconds;
  plan.why.binding =
      found.is_exact()
          ? fmt::format(
                "the least period of all cuts and tables is {:.4g} s, and none within {} times that has more "
                "than {} of {} reads fresh",
                found.least_period_seconds, ring.problem.within, found.best.num_fresh, num_reads)
          : fmt::format(
                "no cut and table has a period below {:.4g} s ({:.2g} % below the least found), none of those "
                "within {} times that has more than {} of {} reads fresh ({} more); {} periods looked at",
                found.period_bound_seconds, 100.0 * gap, ring.problem.within, found.fresh_bound, num_reads,
                found.fresh_bound - found.best.num_fresh, found.num_periods);
  if (found.runner_up) plan.why.runner_up = in_words(*found.runner_up, names(*found.runner_up), num_reads);
  return plan;
}

}  // namespace strata
