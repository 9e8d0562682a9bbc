#include "planners/cyclic/planned_ring.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "partition/repeated_blocks.hpp"
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

/// The model with two blocks of each run of equal ones: what kernels of the second take, those of the others do. The
/// first one's may be less: nobody reads the gradient of a model's input.
class FewBlocks {
 public:
  explicit FewBlocks(const ModelGraph& graph)
      : operators_(graph.operators.size()), parameters_(graph.parameters.size()) {
    constexpr int enough = 2;
    std::iota(operators_.begin(), operators_.end(), 0);
    std::iota(parameters_.begin(), parameters_.end(), 0);
    const std::vector<BlockRun> runs = runs_of_equal_blocks(graph, [](int, int) { return true; });
    std::vector<int> kept;
    for (const BlockRun& run : runs) {
      kept.push_back(std::min(run.count, enough));
      const Block& last = graph.blocks[static_cast<std::size_t>(run.first + kept.back() - 1)];
      for (int b = run.first + kept.back(); b < run.first + run.count; ++b) {
        const int first = graph.blocks[static_cast<std::size_t>(b)].first_operator;
        for (int i = 0; i < last.num_operators; ++i) stand_in(graph, last.first_operator + i, first + i);
      }
    }
    part_ = with_fewer_blocks(graph, runs, kept);
  }
  const ModelGraph& part() const { return part_; }
  /// What is priced in the stead of an operator, or a parameter: itself, or one of a block that is like its own.
  int of_operator(std::size_t o) const { return operators_[o]; }
  int of_parameter(std::size_t p) const { return parameters_[p]; }

 private:
  void stand_in(const ModelGraph& graph, int priced, int other) {
    operators_[static_cast<std::size_t>(other)] = priced;
    const std::vector<int>& theirs = graph.operators[static_cast<std::size_t>(priced)].parameters;
    const std::vector<int>& own = graph.operators[static_cast<std::size_t>(other)].parameters;
    for (std::size_t k = 0; k < own.size(); ++k) parameters_[static_cast<std::size_t>(own[k])] = theirs[k];
  }

  std::vector<int> operators_, parameters_;
  ModelGraph part_{};
};

/// By operator or parameter, by name, what it takes of a training step; by "" what is of neither, such as loading the
/// input.
std::map<std::string, RingPiece, std::less<>> prices_by_name(const PlanRequest& request, const Plan& plan,
                                                             const ModelGraph& part) {
  const PricedStep step = request.evaluate->price(on_one_rank(plan), part);
  if (!step.missing.empty()) throw Unsupported(step.missing);
  std::map<std::string, RingPiece, std::less<>> prices{{"", {}}};
  for (const Operator& op : part.operators) prices.try_emplace(op.name);
  for (const Parameter& parameter : part.parameters) prices.try_emplace(parameter.name);
  constexpr double steps = 2.0;  // of a body with two versions of the parameters
  for (const PricedInstruction& in : step.instructions) {
    if (in.is_collective) continue;
    const auto found = prices.find(in.name);
    RingPiece& price = found == prices.end() ? prices[""] : found->second;
    const double seconds = in.seconds / steps;
    switch (in.phase) {
      case Phase::update: price.update += seconds; break;
      case Phase::reduce: price.addition += seconds; break;
      case Phase::recompute:
      case Phase::backward: price.backward += in.micro_batch == 1 ? seconds : 0.0; break;
      default: price.forward += in.micro_batch == 1 ? seconds : 0.0; break;
    }
  }
  return prices;
}

/// Seconds and bytes of all pieces. What is of no operator is of the first one.
void price(const PlanRequest& request, const Plan& plan, PricedRing& ring) {
  const ModelGraph& graph = request.graph;
  const FewBlocks few(graph);
  const auto prices = prices_by_name(request, plan, few.part());
  std::vector<RingPiece>& pieces = ring.problem.pieces;
  const auto add = [&](std::size_t piece, const std::string& priced) {
    const RingPiece& more = prices.at(priced);
    pieces[piece].forward += more.forward;
    pieces[piece].backward += more.backward;
    pieces[piece].addition += more.addition;
    pieces[piece].update += more.update;
  };
  add(0, "");
  std::vector<bool> is_seen(graph.parameters.size(), false);
  std::size_t piece = 0;
  for (std::size_t o = 0; o < graph.operators.size(); ++o) {
    if (piece + 1 < ring.begins.size() && static_cast<int>(o) == ring.begins[piece + 1]) ++piece;
    add(piece, graph.operators[static_cast<std::size_t>(few.of_operator(o))].name);
    for (const int p : graph.operators[o].parameters) {
      const auto number = static_cast<std::size_t>(p);
      if (is_seen[number]) continue;
      is_seen[number] = true;
      add(piece, graph.parameters[static_cast<std::size_t>(few.of_parameter(number))].name);
      const std::int64_t elements = graph.parameters[number].num_elements();
      pieces[piece].gradient_bytes += elements * size_of(plan.dtypes.gradient);
      pieces[piece].parameter_bytes += elements * size_of(plan.dtypes.compute);
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
  price(request, plan, ring);
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
