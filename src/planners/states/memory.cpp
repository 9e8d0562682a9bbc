#include "planners/states/memory.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/ceil_div.hpp"
#include "partition/sample_parts.hpp"
#include "partition/shards.hpp"

namespace strata {
namespace {

std::int64_t element_bytes(TensorRole role, DType compute) {
  switch (role) {
    case TensorRole::activation:
    case TensorRole::image: return size_of(compute);
    case TensorRole::statistic:
    case TensorRole::loss:
    case TensorRole::tokens:
    case TensorRole::targets: return 4;
    case TensorRole::indices: return 1;
  }
  return 0;
}

/// Of one sample.
std::int64_t tensor_bytes(const ModelGraph& graph, int tensor, DType compute) {
  const Tensor& t = graph.tensors[static_cast<std::size_t>(tensor)];
  return t.elements_per_sample() * element_bytes(t.role, compute);
}

/// Of one sample: the gradients of an operator's inputs and outputs. That of the logits is left where they were.
std::int64_t gradient_bytes_around(const ModelGraph& graph, const Operator& op, DType compute) {
  if (op.kind == OperatorKind::cross_entropy) return 0;
  std::int64_t sum = 0;
  for (const std::vector<int>* tensors : {&op.inputs, &op.outputs}) {
    for (const int t : *tensors) {
      const bool has_gradient = graph.tensors[static_cast<std::size_t>(t)].role == TensorRole::activation;
      sum += has_gradient ? tensor_bytes(graph, t, compute) : 0;
    }
  }
  return sum;
}

}  // namespace

std::int64_t optimizer_bytes_per_element(const Plan& plan) {
  const std::int64_t master = plan.dtypes.compute == DType::f32 ? 0 : 1;  // f32 weights are their own masters
  return size_of(DType::f32) * (num_moments(plan.optimizer) + master);
}

std::vector<BackwardMoment> backward_moments(const ModelGraph& graph, DType compute, Recompute recompute,
                                             std::int64_t num_samples) {
  const int num_operators = static_cast<int>(graph.operators.size());
  constexpr int never = -1;
  // By tensor: the operator whose backward is the last to read it, which is the first in the graph.
  std::vector<int> kept_until(graph.tensors.size(), never);
  std::vector<int> recomputed_until(graph.tensors.size(), never);
  std::vector<int> produced_in(graph.tensors.size(), never);  // block
  for (int o = 0; o < num_operators; ++o) {
    const Operator& op = graph.operators[static_cast<std::size_t>(o)];
    for (const int t : op.outputs) produced_in[static_cast<std::size_t>(t)] = op.block;
    const auto need = [&](int tensor, int until) {
      const auto t = static_cast<std::size_t>(tensor);
      const bool again = recompute == Recompute::block && op.block >= 0 && produced_in[t] == op.block;
      int& last = again ? recomputed_until[t] : kept_until[t];
      if (last == never) last = until;
    };
    for (const int t : saved_for_backward(op)) need(t, o);
    if (recompute == Recompute::block && op.block >= 0) {
      for (const int t : op.inputs) {
        if (produced_in[static_cast<std::size_t>(t)] != op.block) {
          need(t, graph.blocks[static_cast<std::size_t>(op.block)].first_operator);
        }
      }
    }
  }

  std::vector<BackwardMoment> moments(graph.operators.size());
  for (int o = num_operators; o-- > 0;) {
    const Operator& op = graph.operators[static_cast<std::size_t>(o)];
    BackwardMoment& moment = moments[static_cast<std::size_t>(o)];
    for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
      const bool kept = kept_until[t] != never && kept_until[t] <= o;
      const bool again = recomputed_until[t] != never && recomputed_until[t] <= o && produced_in[t] == op.block;
      if (kept || again) moment.activations += num_samples * tensor_bytes(graph, static_cast<int>(t), compute);
    }
    moment.activation_gradients = num_samples * gradient_bytes_around(graph, op, compute);
  }
  return moments;
}

StateMemory::StateMemory(const ModelGraph& graph, const Plan& plan) : plan_(plan), step_(graph, plan) {
  for (const Parameter& p : graph.parameters) sizes_.push_back(p.num_elements());
  moments_ = backward_moments(graph, plan.dtypes.compute, plan.recompute, most_samples_of_rank(plan));
}

const std::vector<int>& StateMemory::owners(int num_owners) const {
  const auto [place, is_new] = owners_.try_emplace(num_owners);
  if (!is_new) return place->second;
  place->second = deal_largest_first(sizes_, num_owners);
  return place->second;
}

std::int64_t StateMemory::elements_held(int parameter_ranks, int part_ranks) const {
  const bool dealt = part_ranks > 1 && plan_.optimizer.sharding == "inter_tensor";
  std::vector<std::int64_t> held(dealt ? static_cast<std::size_t>(part_ranks) : 1, 0);
  const std::vector<int>* owner_of = dealt ? &owners(part_ranks) : nullptr;
  for (std::size_t p = 0; p < sizes_.size(); ++p) {
    const std::int64_t shard = ceil_div(sizes_[p], parameter_ranks);
    if (dealt) {
      held[static_cast<std::size_t>((*owner_of)[p])] += shard;
    } else {
      held[0] += ceil_div(shard, part_ranks);
    }
  }
  return *std::ranges::max_element(held);
}

std::int64_t StateMemory::parameter_bytes(const StateFactors& state) const {
  return size_of(plan_.dtypes.compute) * elements_held(state.p.total(), 1);
}

std::int64_t StateMemory::optimizer_bytes(const StateFactors& state) const {
  const int s_p = state.p.total();
  return optimizer_bytes_per_element(plan_) * elements_held(s_p, state.os.total() / s_p);
}

Shares StateMemory::shares(const StateFactors& state) const {
  const int parts = state.os.total() / state.p.total();
  const bool dealt = parts > 1 && plan_.optimizer.sharding == "inter_tensor";
  Shares shares;
  for (const std::int64_t size : sizes_) {
    shares.held.push_back(ceil_div(size, state.p.total()));
    shares.updated.push_back(dealt ? shares.held.back() : ceil_div(shares.held.back(), parts));
  }
  if (dealt) {
    shares.owner = owners(parts);
    shares.num_owners = parts;
  } else {
    shares.owner.assign(sizes_.size(), 0);
  }
  return shares;
}

std::int64_t StateMemory::states_and_transfers(const StateFactors& state) const {
  std::int64_t most = 0;
  step_.walk(state, shares(state), [&](const StepMoment& moment) {
    if (moment.allocates) most = std::max(most, moment.total());
  });
  return parameter_bytes(state) + most;
}

MemoryAccount StateMemory::account(const StateFactors& state) const {
  MemoryAccount account;
  std::int64_t least = 0;
  const std::int64_t parameters = parameter_bytes(state), optimizer = optimizer_bytes(state);
  step_.walk(state, shares(state), [&](const StepMoment& moment) {
    const bool has_activations = moment.op >= 0;
    const BackwardMoment kept = has_activations ? moments_[static_cast<std::size_t>(moment.op)] : BackwardMoment{};
    const MemoryAccount now{
        .parameters = parameters + moment.second,
        .gradients = moment.own - optimizer + moment.buckets,
        .optimizer = optimizer,
        .activations = kept.activations,
        .temporary = moment.temporary() + (moment.backward ? kept.activation_gradients : 0),
    };
    if (moment.backward) least = std::max(least, parameters + moment.total() - moment.leaving + kept.activations);
    if (now.total() > account.total()) account = now;
  });
  account.least = least;
  return account;
}

}  // namespace strata
