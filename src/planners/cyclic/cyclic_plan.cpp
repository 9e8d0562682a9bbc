#include "planners/cyclic/cyclic_plan.hpp"

#include <fmt/core.h>

#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "ir/plan/stage_pyramid.hpp"
#include "planners/cyclic/planned_ring.hpp"
#include "planners/even_micro_batches.hpp"
#include "planners/pipelines/asked_stages.hpp"

namespace strata {
namespace {

std::array<OptionRow, 11> rows_with(std::string_view fresh) {
  return {
      OptionRow{
          "implementation", std::string("multi"), "multi | single | pipeline | model | zero",
          "multi: a rank a micro-batch, each with a replica; single: one rank; pipeline: a rank a stage; model: of "
          "N stages and micro-batches stage j (from 0) on N - j ranks, N(N+1)/2 in all; zero: a rank a micro-batch and "
          "a stage, whose parameters go to the rank that reads them next"},
      OptionRow{"fresh", std::string(fresh), "",
                "which micro-batches read their own step's parameters: none (v1), v2 (all that are there in time), a "
                "table \"001 011 111\", a row a micro-batch, a digit a stage, or planner, which cuts the stages too"},
      OptionRow{"within", 1.0, ">= 1",
                "fresh = planner: times the least period that a step may take so that more reads are fresh"},
      OptionRow{"stages", std::int64_t{0}, ">= 0", "stages of the model; 0: as many as micro-batches"},
      OptionRow{"cut_by", std::string("flops"), "flops | flops_paper | operators | parameters",
                "what the largest stage has the least of; flops_paper: with biases counted apart"},
      OptionRow{"cut_at", std::string("block"), "block | operator", "where a stage may begin"},
      OptionRow{"sum", std::string("inside"), "inside | after",
                "gradients of micro-batches are added up by the kernels that make them, or behind these"},
      OptionRow{"spread", std::string("relay"), "relay | direct",
                "multi: updated parameters go from reader to reader, or from the last rank to all"},
      OptionRow{"spare_stages", std::int64_t{1}, ">= 0",
                "multi: first stages with a second buffer for the parameters that come while the old are read"},
      OptionRow{"shift", std::string("free"), "free | paced | begun",
                "multi: a rank waits for data alone; or is 2·stages/ranks passes behind the one before; or up to a "
                "pass less"},
      OptionRow{"optimizer", std::string("last"), "last | first_user",
                "multi: which rank updates a stage and has its optimizer's states: the last one, or, of as many stages "
                "as ranks, the one that reads it first"},
  };
}

/// Micro-batches, and stages, whose pyramid stands on the ranks that there are.
int micro_batches_of_pyramid(const Plan& base) {
  const int asked = base.schedule.micro_batches, ranks = base.mesh.num_ranks();
  int n = 1;
  while (StagePyramid{n}.num_ranks() < ranks) ++n;
  if (const int needed = StagePyramid{n}.num_ranks(); needed != ranks) {
    throw Unsupported(fmt::format(
        "{}: implementation = model takes N(N+1)/2 ranks, of N micro-batches and stages; {} nodes × {} ranks a node "
        "are {}; accepted: {} (N = {}), {} (N = {})",
        base.strategy, base.mesh.nodes, base.mesh.ranks_per_node, ranks, StagePyramid{n - 1}.num_ranks(), n - 1, needed,
        n));
  }
  if (asked == 1 || asked == n) return n;
  throw Unsupported(
      fmt::format("{}: implementation = model on {} ranks takes {} micro-batches, train.micro_batches is {}, whose "
                  "pyramid takes {} ranks; accepted: {}, or 1, which means so many here",
                  base.strategy, ranks, n, asked, std::int64_t{asked} * (asked + 1) / 2, n));
}

/// The step's micro-batches: those that [train] asks for, or, of one a rank, as many as ranks where it asks for none.
int micro_batches_of(const PlanRequest& request, const std::string& implementation) {
  const Plan& base = request.base;
  const int asked = base.schedule.micro_batches;
  const int ranks = base.mesh.num_ranks();
  if (implementation == "model") return micro_batches_of_pyramid(base);
  if (implementation == "single" || asked == ranks) return asked;
  if (asked == 1) return ranks;
  throw Unsupported(fmt::format(
      "{}: implementation = {} on {} ranks takes as many micro-batches as ranks, train.micro_batches is {}; accepted: "
      "{}, or 1, which means so many here",
      base.strategy, implementation, ranks, asked, ranks));
}

/// fresh = planner looks at rings whose ranks wait for data alone, and whose last one updates each stage behind its own
/// backward.
void refuse_to_plan(const Plan& plan) {
  const auto refuse = [&](const std::string& what, std::string_view accepted) {
    throw Unsupported(fmt::format(
        "{}: fresh = planner with {}, of which it does not know how long steps take; accepted: {}, or fresh = {}",
        plan.strategy, what, accepted, plan.optimizer.clip_norm > 0.0 ? "none" : "v2"));
  };
  if (plan.schedule.shift != "free") refuse(fmt::format("shift = {}", plan.schedule.shift), "shift = free");
  if (plan.schedule.updater != "last") refuse(fmt::format("optimizer = {}", plan.schedule.updater), "optimizer = last");
  if (plan.optimizer.clip_norm > 0.0) {
    refuse(fmt::format("train.clip_norm = {}", plan.optimizer.clip_norm), "train.clip_norm = 0");
  }
}

}  // namespace

std::span<const OptionRow> cyclic_options(std::string_view fresh) {
  static const std::array never = rows_with("none");
  static const std::array freshest = rows_with("v2");
  return fresh == "none" ? std::span<const OptionRow>(never) : freshest;
}

Plan cyclic_plan(const PlanRequest& request) {
  Plan plan = request.base;
  const int ranks = plan.mesh.num_ranks();
  const auto& implementation = request.option<std::string>("implementation");
  refuse_uneven_micro_batches(plan);
  if (implementation == "single" && ranks != 1) {
    throw Unsupported(fmt::format("{}: implementation = single runs on one rank, {} nodes × {} ranks a node are {}",
                                  plan.strategy, plan.mesh.nodes, plan.mesh.ranks_per_node, ranks));
  }
  plan.schedule.micro_batches = micro_batches_of(request, implementation);
  refuse_uneven_micro_batches(plan);
  const auto asked = request.option<std::int64_t>("stages");
  const std::int64_t stages = asked == 0 ? plan.schedule.micro_batches : asked;
  if ((implementation == "pipeline" || implementation == "zero") && stages != ranks) {
    throw Unsupported(
        fmt::format("{}: implementation = {} on {} ranks takes as many stages as ranks, {} were "
                    "asked for",
                    plan.strategy, implementation, ranks, stages));
  }
  if (implementation == "model" && stages != plan.schedule.micro_batches) {
    throw Unsupported(fmt::format(
        "{}: implementation = model on {} ranks takes as many stages as micro-batches, {}; {} were asked for",
        plan.strategy, ranks, plan.schedule.micro_batches, stages));
  }
  plan.stages = asked_stages(request, stages);
  plan.mesh.axes = {{"stage", implementation == "pipeline" ? ranks : 1},
                    {"micro_batch", implementation == "multi" || implementation == "zero" ? ranks : 1}};
  if (implementation == "model") {
    plan.mesh.axes = {{"stage", static_cast<int>(stages)}};
    plan.mesh.placement = "pyramid";
  }
  if (implementation == "zero") {
    plan.mesh.placement = "zero-ring";
    plan.operators = {OperatorRule{.match = "*", .state = StateFactors{.walks = true}}};
  }
  plan.schedule.kind = ScheduleKind::cyclic;
  plan.schedule.fresh = request.option<std::string>("fresh");
  plan.schedule.sum = request.option<std::string>("sum");
  plan.schedule.spread = request.option<std::string>("spread");
  plan.schedule.spare_stages = static_cast<int>(request.option<std::int64_t>("spare_stages"));
  plan.schedule.shift = request.option<std::string>("shift");
  plan.schedule.updater = request.option<std::string>("optimizer");
  if (plan.schedule.fresh != planner_word) return plan;
  if (implementation != "multi") {
    throw Unsupported(fmt::format(
        "{}: fresh = planner with implementation = {}, whose order allows no table fresher than v2 and takes as long "
        "with any; accepted: implementation = multi, or fresh = v2",
        plan.strategy, implementation));
  }
  refuse_to_plan(plan);
  return planned_ring(request, std::move(plan));
}

}  // namespace strata
