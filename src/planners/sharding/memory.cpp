#include "planners/sharding/memory.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/ceil_div.hpp"
#include "ir/shards.hpp"

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

std::int64_t parameter_elements(const ModelGraph& graph, const Operator& op) {
  std::int64_t sum = 0;
  for (const int p : op.parameters) sum += graph.parameters[static_cast<std::size_t>(p)].num_elements();
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
  std::vector<bool> counted(graph.parameters.size(), false);
  std::int64_t elements = 0;
  for (int o = num_operators; o-- > 0;) {
    const Operator& op = graph.operators[static_cast<std::size_t>(o)];
    BackwardMoment& moment = moments[static_cast<std::size_t>(o)];
    for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
      const bool kept = kept_until[t] != never && kept_until[t] <= o;
      const bool again = recomputed_until[t] != never && recomputed_until[t] <= o && produced_in[t] == op.block;
      if (kept || again) moment.activations += num_samples * tensor_bytes(graph, static_cast<int>(t), compute);
    }
    moment.activation_gradients = num_samples * gradient_bytes_around(graph, op, compute);
    for (const int p : op.parameters) {
      if (!counted[static_cast<std::size_t>(p)])
        elements += graph.parameters[static_cast<std::size_t>(p)].num_elements();
      counted[static_cast<std::size_t>(p)] = true;
    }
    moment.gradient_share = static_cast<double>(elements) / static_cast<double>(graph.num_parameters());
  }
  return moments;
}

StateMemory::StateMemory(const ModelGraph& graph, const Plan& plan) : plan_(plan) {
  for (const Parameter& p : graph.parameters) sizes_.push_back(p.num_elements());
  const std::int64_t samples = plan.global_batch / (std::int64_t{plan.mesh.num_ranks()} * plan.schedule.micro_batches);
  moments_ = backward_moments(graph, plan.dtypes.compute, plan.recompute, samples);
  std::vector<std::int64_t> layers(graph.blocks.size(), 0);
  for (const Operator& op : graph.operators) {
    const std::int64_t elements = parameter_elements(graph, op);
    largest_operator_ = std::max(largest_operator_, elements);
    if (op.block >= 0) layers[static_cast<std::size_t>(op.block)] += elements;
  }
  largest_layer_ = std::max(largest_operator_, layers.empty() ? 0 : *std::ranges::max_element(layers));
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

std::int64_t StateMemory::gradient_bytes(const StateFactors& state) const {
  const int s_p = state.p.total();
  return size_of(plan_.dtypes.gradient) * elements_held(s_p, state.g.total() / s_p);
}

std::int64_t StateMemory::optimizer_bytes(const StateFactors& state) const {
  const int s_p = state.p.total();
  return optimizer_bytes_per_element(plan_) * elements_held(s_p, state.os.total() / s_p);
}

std::int64_t StateMemory::states(const StateFactors& state) const {
  StateFactors at_update = state;
  if (plan_.optimizer.gradients == "reduce_scatter") at_update.g = state.os;
  return parameter_bytes(state) + gradient_bytes(at_update) + optimizer_bytes(state);
}

MemoryAccount StateMemory::account(const StateFactors& state) const {
  const int s_p = state.p.total(), s_g = state.g.total();
  const std::int64_t weight_bytes = size_of(plan_.dtypes.compute), gradient_element = size_of(plan_.dtypes.gradient);
  const std::int64_t held = elements_held(s_p, 1);
  MemoryAccount account;
  account.parameters = parameter_bytes(state);
  account.optimizer = optimizer_bytes(state);
  const std::int64_t all_gradients = gradient_bytes(state);
  for (const BackwardMoment& moment : moments_) {
    std::int64_t gradients = all_gradients;
    if (plan_.schedule.micro_batches == 1) {
      // They come in whole buckets.
      const double share = moment.gradient_share * static_cast<double>(all_gradients);
      gradients = std::min<std::int64_t>(all_gradients, plan_.overlap.bucket_bytes + std::llround(share));
    }
    if (gradients + moment.activations + moment.activation_gradients >
        account.gradients + account.activations + account.temporary) {
      account.gradients = gradients;
      account.activations = moment.activations;
      account.temporary = moment.activation_gradients;
    }
  }
  if (s_p > 1) {
    const bool prefetches = plan_.overlap.gather != "none";
    account.temporary += weight_bytes * (prefetches ? 2 * largest_layer_ : largest_operator_);
    account.temporary += gradient_element * largest_operator_ * (plan_.overlap.reduce_scatter == "none" ? 1 : 2);
  }
  // Before the rest of it is dropped, or scattered, one bucket is whole.
  if (s_g > s_p)
    account.temporary +=
        std::min(gradient_element * held, plan_.overlap.bucket_bytes + gradient_element * largest_operator_ / s_p);
  return account;
}

}  // namespace strata
