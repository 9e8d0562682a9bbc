#include "lower/states/parameter_buffers.hpp"

#include <utility>

namespace strata {

ParameterBuffers::ParameterBuffers(const Plan& plan, const ModelGraph& graph, std::span<const Operator> operators,
                                   std::span<const ParameterShard> shards, ProgramBuilder& builder)
    : graph_(graph), builder_(builder), mixed_(plan.dtypes.compute != DType::f32), owned_(graph.parameters.size()) {
  std::vector<bool> used(graph.parameters.size(), false);
  for (const Operator& op : operators) {
    for (const int p : op.parameters) used[static_cast<std::size_t>(p)] = true;
  }
  for (std::size_t p = 0; p < owned_.size(); ++p) {
    if (!used[p]) continue;
    const ParameterShard& s = shards[p];
    const Parameter& parameter = graph_.parameters[p];
    const Piece updated{s.held.begin + s.updated.begin, s.updated.size};  // of the flattened parameter
    const auto add = [&](const char* suffix, const Piece& piece, DType dtype, Category category, bool is_master) {
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
    owned.weight = add("", s.held, plan.dtypes.compute, Category::parameter, !mixed_);
    owned.master = {owned.weight, s.updated.begin, s.updated.size};
    if (mixed_) owned.master = builder_.whole(add("/master", updated, DType::f32, Category::optimizer, true));
    for (int i = 0; i < num_moments(plan.optimizer); ++i) {
      owned.states.push_back(add(num_moments(plan.optimizer) == 1 ? "/momentum"
                                 : i == 0                         ? "/m"
                                                                  : "/v",
                                 updated, DType::f32, Category::optimizer, false));
    }
  }
}

std::vector<int> ParameterBuffers::weights() const {
  std::vector<int> all;
  for (const Owned& owned : owned_) all.push_back(owned.weight);
  return all;
}

void ParameterBuffers::initialize() const {
  for (std::size_t p = 0; p < owned_.size(); ++p) {
    const Parameter& parameter = graph_.parameters[p];
    const Owned& owned = owned_[p];
    if (!owned.held()) continue;
    const auto emit = [&](Kernel kernel, std::vector<Operand> inputs, Operand output, Attributes attributes) {
      if (output.num_elements == 0) return;
      attributes.set("elements", output.num_elements);
      builder_.emit({.kernel = kernel,
                     .phase = Phase::setup,
                     .name = parameter.whole(),
                     .inputs = std::move(inputs),
                     .outputs = {output},
                     .attributes = std::move(attributes)});
    };
    const Initializer& initializer = parameter.initializer;
    const Attributes values = {
        {"distribution", std::int64_t{static_cast<int>(initializer.kind)}}, {"a", initializer.a}, {"b", initializer.b}};
    const Operand weight = builder_.whole(owned.weight);
    if (!mixed_) {
      emit(Kernel::initialize, {}, weight, values);
    } else {
      emit(Kernel::initialize, {}, owned.master, values);
      const bool has_all = owned.master.num_elements == weight.num_elements;
      emit(has_all ? Kernel::copy : Kernel::initialize,
           has_all ? std::vector<Operand>{owned.master} : std::vector<Operand>{}, weight,
           has_all ? Attributes{} : values);
    }
    for (const int state : owned.states) {
      emit(Kernel::fill, {}, builder_.whole(state), {{"value", 0.0}});
    }
  }
}

}  // namespace strata
