#include "lower/lower.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lower/layouts/laid_out_graph.hpp"
#include "lower/order/orders_of_stages.hpp"
#include "lower/step/step_lowering.hpp"
#include "lower/unsupported.hpp"
#include "partition/operator_splitting.hpp"
#include "partition/sample_parts.hpp"
#include "partition/stages.hpp"

namespace strata {
namespace {

/// The model of a rank of a plan without layouts: every rank has all of it, and its samples.
LaidOutGraph replicated(const Plan& plan, SplitModel split, int rank) {
  const Chunk samples = samples_of_rank(plan, rank);
  const bool has_all = samples.size() == samples_of_micro_batch(plan);
  const StridedBlock neighbours{.first = samples.begin, .run = std::max<std::int64_t>(samples.size(), 1)};
  const std::size_t num_tensors = split.graph.tensors.size();
  std::vector<Stage> stages = cut_into_stages(split.graph, plan.stages);
  return {.graph = std::move(split.graph),
          .decisions = std::move(split.decisions),
          .layouts = {},
          .num_samples = std::vector<std::int64_t>(num_tensors, samples.size()),
          .samples = std::vector<StridedBlock>(num_tensors, has_all ? StridedBlock{} : neighbours),
          .replicas = {},
          .stages = std::move(stages),
          .steps = {}};
}

LaidOutGraph model_of(const Plan& plan, const ModelGraph& graph, int rank) {
  verify(plan, graph);
  const std::vector<OperatorDecision> decisions = resolve(plan, graph);
  if (has_layouts(plan.mesh)) {
    refuse_what_is_missing(plan, graph, decisions);
    return lay_out(plan, graph, decisions, rank);
  }
  SplitModel split = split_operators(plan, graph, decisions);
  refuse_what_is_missing(plan, split.graph, split.decisions);
  refuse_what_is_not_quantized(plan, split.graph, split.decisions);
  return replicated(plan, std::move(split), rank);
}

}  // namespace

Program lower(const Plan& plan, const ModelGraph& graph, int rank, const WorkspaceBytes& workspace_bytes) {
  return lower(plan, graph, rank, workspace_bytes, order_generator_of(plan));
}

Program lower(const Plan& plan, const ModelGraph& graph, int rank, const WorkspaceBytes& workspace_bytes,
              const OrderGenerator& generator) {
  const LaidOutGraph model = model_of(plan, graph, rank);
  return lower_step(plan, model, rank, OrdersOfStages(plan, model, generator), workspace_bytes);
}

std::vector<StepOrder> step_orders(const Plan& plan, const ModelGraph& graph) {
  const OrderGenerator generator = order_generator_of(plan);
  const LaidOutGraph model = model_of(plan, graph, 0);
  const OrdersOfStages orders(plan, model, generator);
  std::vector<StepOrder> result;
  for (int stage = 0; stage < orders.num_stages(); ++stage) result.push_back(orders.of(stage));
  return result;
}

}  // namespace strata
