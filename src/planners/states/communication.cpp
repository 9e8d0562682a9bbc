#include "planners/states/communication.hpp"

#include <algorithm>
#include <cmath>

#include "planners/states/factors.hpp"

namespace strata {

StateCommunication::StateCommunication(const ModelGraph& graph, const Plan& plan, const CostModel* costs)
    : plan_(plan),
      costs_(costs),
      elements_(static_cast<double>(graph.num_parameters())),
      num_parameters_(static_cast<double>(graph.parameters.size())) {
  const bool regathers = recomputes_blocks(plan.recompute) && plan.gathered_after_recompute == "regather";
  for (const Operator& op : graph.operators) {
    Module module;
    for (const int p : op.parameters) module.elements += graph.parameters[static_cast<std::size_t>(p)].num_elements();
    if (module.elements == 0) continue;
    // Backward reads no parameter of these.
    const bool is_added = op.kind == OperatorKind::embedding || op.kind == OperatorKind::class_token;
    module.num_gathers = is_added ? 1 : 2;
    if (regathers && op.block >= 0) ++module.num_gathers;
    ++modules_[module];
  }
}

double StateCommunication::time(Collective kind, double bytes, const Factor& group) const {
  if (group.total() == 1) return 0.0;
  const CollectiveCost cost = costs_->collective(kind, std::llround(bytes), {.shape = group});
  const double groups_of_a_node = static_cast<double>(plan_.mesh.ranks_per_node) / group.in_node;
  const double wanted = groups_of_a_node * cost.nics_used / costs_->nics_per_node();
  return cost.seconds * std::max(1.0, wanted);
}

double StateCommunication::bucketed(Collective kind, double bytes, const Factor& group) const {
  // Without buckets every gradient goes alone.
  const auto asked = static_cast<double>(plan_.overlap.bucket_bytes);
  const double bucket = std::min(bytes, asked > 0.0 ? asked : bytes / num_parameters_);
  return bucket > 0.0 ? bytes / bucket * time(kind, bucket, group) : 0.0;
}

CommunicationSeconds StateCommunication::seconds(const StateFactors& state) const {
  const auto weight_bytes = static_cast<double>(size_of(plan_.dtypes.compute));
  const auto gradient_bytes = static_cast<double>(size_of(plan_.dtypes.gradient));
  const Factor grid{plan_.mesh.ranks_per_node, plan_.mesh.nodes};
  const int micro_batches = plan_.schedule.micro_batches;
  const bool scatters = plan_.optimizer.gradients == "reduce_scatter";
  const double shard = elements_ / state.p.total();

  CommunicationSeconds seconds;
  for (const auto& [module, count] : modules_) {
    const auto n = static_cast<double>(module.elements);
    seconds.parameters += micro_batches * count *
                          (module.num_gathers * time(Collective::all_gather, weight_bytes * n, state.p) +
                           time(Collective::reduce_scatter, gradient_bytes * n, state.p));
  }
  if (state.g != state.p) {
    const Collective kind = scatters ? Collective::reduce_scatter : Collective::all_reduce;
    seconds.gradients = (micro_batches - 1) * bucketed(kind, gradient_bytes * shard, quotient(state.g, state.p));
  }
  const Factor parts = quotient(state.os, state.p);
  if (scatters) {
    seconds.optimizer =
        bucketed(Collective::reduce_scatter, gradient_bytes * shard, parts) +
        bucketed(Collective::all_reduce, gradient_bytes * shard / parts.total(), quotient(grid, state.os));
  } else {
    seconds.optimizer = bucketed(Collective::all_reduce, gradient_bytes * shard, quotient(grid, state.p));
  }
  seconds.optimizer += plan_.optimizer.spread == "broadcast"
                           ? parts.total() * time(Collective::broadcast, weight_bytes * shard / parts.total(), parts)
                           : time(Collective::all_gather, weight_bytes * shard, parts);
  return seconds;
}

}  // namespace strata
