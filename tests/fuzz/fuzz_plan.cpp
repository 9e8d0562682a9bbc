/// @file
/// A plan as `--plan` takes it, against a small model: what verifies is lowered, or refused with a reason.

#include <string_view>
#include <vector>

#include "fuzz/fuzz_target.hpp"
#include "ir/plan/plan.hpp"
#include "ir/program/program.hpp"
#include "lower/lower.hpp"
#include "models/model.hpp"

namespace strata::fuzz::plan_text {
namespace {

/// All ranks' Programs, which fit together; nothing where one is refused.
void lower_all(const Plan& plan, const ModelGraph& graph) {
  std::vector<Program> programs;
  for (int rank = 0; rank < plan.mesh.num_ranks(); ++rank) {
    try {
      programs.push_back(lower(plan, graph, rank, [](const Program&, const Instruction&) { return 0; }));
    } catch (const Unsupported& error) {
      require(std::string_view(error.what()).size() > 10, "a refusal without a reason");
      return;
    }
    verify(programs.back());
  }
  verify(programs);
}

}  // namespace

STRATA_FUZZ_TARGET(plan) {
  static const ModelGraph graph = build_model({.name = "mlp", .widths = {48, 16, 8, 10}});
  const auto plan = unless_refused("input.toml:", [&] { return parse_plan(text_of(bytes), "input.toml"); });
  if (!plan) return;
  const std::string text = to_text(*plan);
  require(parse_plan(text, "text form") == *plan, "a plan and its text differ:\n" + text);
  const auto verified = unless_refused("plan", [&] {
    verify(*plan, graph);
    return true;
  });
  if (!verified) return;
  require(resolve(*plan, graph).size() == graph.operators.size(), "a decision for every operator");
  for (const MeshAxis& axis : plan->mesh.axes) {
    const int last = plan->mesh.num_ranks() - 1;
    require(coordinate(plan->mesh, axis.name, last) == axis.size - 1, "the last rank is last on every axis");
  }
  // Programs are as long as a plan has micro-batches, and as many as it has ranks.
  const bool is_small = plan->mesh.num_ranks() <= 8 && plan->schedule.micro_batches <= 8;
  if (is_small) lower_all(*plan, graph);
}

}  // namespace strata::fuzz::plan_text
