#include "lower/states/parameter_buffers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

namespace strata {

std::vector<int> versions_of_parameters(const StepOrder& order, const ModelGraph& graph) {
  std::vector<int> versions(graph.parameters.size(), 0);
  for (const OrderItem& item : order.items) {
    if (item.pass == Pass::update) continue;
    for (const int p : order.shape.segments[static_cast<std::size_t>(item.segment)].parameters) {
      int& most = versions[static_cast<std::size_t>(p)];
      most = std::max(most, item.version + 1);
    }
  }
  return versions;
}

std::vector<int> versions_on_ring(const StepOrder& order, const ModelGraph& graph, const ReplicaRing& ring) {
  std::vector<int> versions(graph.parameters.size(), 0);
  for (const Segment& segment : order.shape.segments) {
    for (const int p : segment.parameters) {
      versions[static_cast<std::size_t>(p)] = ring.stages[static_cast<std::size_t>(segment.stage)].num_versions;
    }
  }
  return versions;
}

std::vector<bool> updated_parameters(const StepOrder& order, const ModelGraph& graph, const ReplicaRing* ring) {
  const bool trains = std::ranges::find(order.items, Pass::backward, &OrderItem::pass) != order.items.end();
  std::vector<bool> updated(graph.parameters.size(), ring == nullptr && trains);
  if (ring == nullptr) return updated;
  for (const Segment& segment : order.shape.segments) {
    for (const int p : segment.parameters) updated[static_cast<std::size_t>(p)] = ring->updates(segment.stage);
  }
  return updated;
}

ParameterBuffers::ParameterBuffers(const Plan& plan, const ModelGraph& graph, std::span<const int> num_versions,
                                   const std::vector<bool>& updates, std::span<const ParameterShard> shards,
                                   ProgramBuilder& builder)
    : graph_(graph),
      shards_(shards),
      builder_(builder),
      mixed_(plan.dtypes.compute != DType::f32),
      owned_(graph.parameters.size()) {
  for (std::size_t p = 0; p < owned_.size(); ++p) {
    if (num_versions[p] == 0) continue;
    const ParameterShard& s = shards[p];
    const Parameter& parameter = graph_.parameters[p];
    const Piece updated{s.held.begin + s.updated.begin, s.updated.size};  // of the flattened parameter
    const auto add = [&](const std::string& suffix, const Piece& piece, DType dtype, Category category,
                         bool is_master) {
      return builder_.add_buffer({.name = parameter.name + suffix,
                                  .num_elements = piece.size,
                                  .dtype = dtype,
                                  .category = category,
                                  .persistent = true,
                                  .parameter = is_master ? parameter.whole() : "",
                                  .parameter_begin = piece.begin,
                                  .block = parameter.block});
    };
    Owned& owned = owned_[p];
    for (int v = 0; v < num_versions[p]; ++v) {
      const std::string suffix = v == 0 ? "" : fmt::format("/version[{}]", v);
      owned.weights.push_back(add(suffix, s.held, plan.dtypes.compute, Category::parameter, updates[p] && !mixed_));
    }
    if (!updates[p]) continue;
    if (mixed_) owned.master = add("/master", updated, DType::f32, Category::optimizer, true);
    for (int i = 0; i < num_moments(plan.optimizer); ++i) {
      owned.states.push_back(add(num_moments(plan.optimizer) == 1 ? "/momentum"
                                 : i == 0                         ? "/m"
                                                                  : "/v",
                                 updated, DType::f32, Category::optimizer, false));
    }
  }
}

int ParameterBuffers::weight(int parameter, int step) const {
  const std::vector<int>& weights = of(parameter).weights;
  if (weights.empty()) return -1;
  const int num_versions = static_cast<int>(weights.size());
  return weights[static_cast<std::size_t>((step % num_versions + num_versions) % num_versions)];
}

Operand ParameterBuffers::master(int parameter, int step) const {
  if (mixed_) return builder_.whole(of(parameter).master);
  const Piece& updated = shards_[static_cast<std::size_t>(parameter)].updated;
  return {weight(parameter, step), updated.begin, updated.size};
}

void ParameterBuffers::initialize(const Place& here) const {
  for (std::size_t p = 0; p < owned_.size(); ++p) {
    const Parameter& parameter = graph_.parameters[p];
    const Owned& owned = owned_[p];
    if (!owned.held()) continue;
    const auto emit = [&](Kernel kernel, std::vector<Operand> inputs, Operand output, Attributes attributes) {
      if (output.num_elements == 0) return;
      attributes.set("elements", output.num_elements);
      here.emit({.kernel = kernel,
                 .phase = Phase::setup,
                 .name = parameter.whole(),
                 .inputs = std::move(inputs),
                 .outputs = {output},
                 .attributes = std::move(attributes)});
    };
    const Initializer& initializer = parameter.initializer;
    const Attributes values = {
        {"distribution", std::int64_t{static_cast<int>(initializer.kind)}}, {"a", initializer.a}, {"b", initializer.b}};
    if (owned.master >= 0) emit(Kernel::initialize, {}, builder_.whole(owned.master), values);
    for (const int id : owned.weights) {  // θ_{-1} is θ_0
      const Operand weight = builder_.whole(id);
      if (owned.master >= 0 && builder_.buffer(owned.master).num_elements == weight.num_elements) {
        emit(Kernel::copy, {builder_.whole(owned.master)}, weight, {});
      } else {
        emit(Kernel::initialize, {}, weight, values);
      }
    }
    for (const int state : owned.states) {
      emit(Kernel::fill, {}, builder_.whole(state), {{"value", 0.0}});
    }
  }
}

}  // namespace strata
