#include "planners/cyclic/cyclic_plan.hpp"

#include <fmt/core.h>

#include <array>
#include <cstdint>
#include <string>

#include "base/error.hpp"
#include "planners/even_micro_batches.hpp"

namespace strata {
namespace {

std::array<OptionRow, 9> rows_with(std::string_view fresh) {
  return {
      OptionRow{"implementation", std::string("multi"), "multi | single | pipeline",
                "multi: a rank a micro-batch, each with a replica; single: one rank; pipeline: a rank a stage"},
      OptionRow{"fresh", std::string(fresh), "",
                "which micro-batches read their own step's parameters: none (v1), v2 (all that are there in time), or "
                "a table \"001 011 111\", a row a micro-batch, a digit a stage"},
      OptionRow{"stages", std::int64_t{0}, ">= 0", "stages of the model; 0: as many as micro-batches"},
      OptionRow{"cut_by", std::string("flops"), "flops | operators | parameters",
                "what the largest stage has the least of"},
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

/// The step's micro-batches: those that [train] asks for, or, of one a rank, as many as ranks where it asks for none.
int micro_batches_of(const PlanRequest& request, const std::string& implementation) {
  const Plan& base = request.base;
  const int asked = base.schedule.micro_batches;
  const int ranks = base.mesh.num_ranks();
  if (implementation == "single" || asked == ranks) return asked;
  if (asked == 1) return ranks;
  throw Unsupported(fmt::format(
      "{}: implementation = {} on {} ranks takes as many micro-batches as ranks, train.micro_batches is {}; accepted: "
      "{}, or 1, which means so many here",
      base.strategy, implementation, ranks, asked, ranks));
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
  const auto asked_stages = request.option<std::int64_t>("stages");
  const std::int64_t stages = asked_stages == 0 ? plan.schedule.micro_batches : asked_stages;
  if (implementation == "pipeline" && stages != ranks) {
    throw Unsupported(
        fmt::format("{}: implementation = pipeline on {} ranks takes as many stages as ranks, {} were "
                    "asked for",
                    plan.strategy, ranks, stages));
  }
  if (const std::int64_t blocks = std::ssize(request.graph.blocks); stages > 1 && stages > blocks) {
    throw Unsupported(fmt::format("{}: {} stages on {} ranks, but {} has {} blocks, and a stage has one or more",
                                  plan.strategy, stages, ranks, request.graph.name, blocks));
  }
  plan.mesh.axes = {{"stage", implementation == "pipeline" ? ranks : 1},
                    {"micro_batch", implementation == "multi" ? ranks : 1}};
  plan.stages = {.count = static_cast<int>(stages), .cut_by = request.option<std::string>("cut_by")};
  plan.schedule.kind = ScheduleKind::cyclic;
  plan.schedule.fresh = request.option<std::string>("fresh");
  plan.schedule.sum = request.option<std::string>("sum");
  plan.schedule.spread = request.option<std::string>("spread");
  plan.schedule.spare_stages = static_cast<int>(request.option<std::int64_t>("spare_stages"));
  plan.schedule.updater = request.option<std::string>("optimizer");
  plan.schedule.shift = request.option<std::string>("shift");
  return plan;
}

}  // namespace strata
