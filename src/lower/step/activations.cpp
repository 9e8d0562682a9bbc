#include "lower/step/activations.hpp"

#include <cstddef>

#include "base/error.hpp"

namespace strata {

Activations::Activations(const ModelGraph& graph, const TensorUses& uses, const ActivationGradients& gradients,
                         DType compute, std::span<const std::int64_t> num_samples, int micro_batch,
                         ProgramBuilder& builder)
    : graph_(graph),
      uses_(uses),
      gradients_(gradients),
      compute_(compute),
      num_samples_(num_samples),
      micro_batch_(micro_batch),
      builder_(builder),
      first_(graph.tensors.size(), -1),
      again_(graph.tensors.size(), -1),
      places_(gradients.tensors.size(), -1) {}

Operand Activations::new_buffer(const std::string& name, int tensor) {
  const Tensor& description = graph_.tensors[static_cast<std::size_t>(tensor)];
  return builder_.whole(builder_.add_buffer({.name = name,
                                             .num_elements = num_samples(tensor) * description.elements_per_sample(),
                                             .dtype = dtype_of(description.role, compute_),
                                             .category = Category::activation}));
}

Operand Activations::value(int tensor) const {
  const auto t = static_cast<std::size_t>(tensor);
  const int buffer = again_[t] >= 0 ? again_[t] : first_[t];
  STRATA_INVARIANT(buffer >= 0, "nothing has produced " + graph_.tensors[t].name);
  return builder_.whole(buffer);
}

void Activations::put(int tensor, int buffer) {
  const auto t = static_cast<std::size_t>(tensor);
  STRATA_INVARIANT(again_[t] < 0, graph_.tensors[t].name + " is made a third time");
  (first_[t] < 0 ? first_ : again_)[t] = buffer;
}

Operand Activations::produce(int tensor) {
  const Operand operand = new_buffer(graph_.tensors[static_cast<std::size_t>(tensor)].name, tensor);
  put(tensor, operand.buffer);
  return operand;
}

Operand Activations::produce_in_place(int tensor, int other) {
  const Operand operand = value(other);
  put(tensor, operand.buffer);
  return operand;
}

std::string Activations::name_of_gradient(int place) const {
  const int tensor = gradients_.tensors[static_cast<std::size_t>(place)];
  return graph_.tensors[static_cast<std::size_t>(tensor)].name + "/gradient";
}

Operand Activations::made(int place) {
  int& buffer = places_[static_cast<std::size_t>(place)];
  if (buffer < 0) {
    buffer = new_buffer(name_of_gradient(place), gradients_.tensors[static_cast<std::size_t>(place)]).buffer;
  }
  return builder_.whole(buffer);
}

Operand Activations::gradient(int place) const {
  STRATA_INVARIANT(place >= 0 && places_[static_cast<std::size_t>(place)] >= 0, "a gradient is read that nobody made");
  return builder_.whole(places_[static_cast<std::size_t>(place)]);
}

void Activations::copy(const Place& here, const Operand& from, const Operand& to, Phase phase,
                       const std::string& name) const {
  here.emit({.kernel = Kernel::copy,
             .phase = phase,
             .micro_batch = micro_batch_,
             .name = name,
             .inputs = {from},
             .outputs = {to},
             .attributes = {{"elements", to.num_elements}}});
}

Operand Activations::turn_into_gradient(const Place& here, const Operator& op,
                                        const ActivationGradients::Contribution& to) {
  const Operand values = value(op.inputs.front());
  if (to.is_values) {
    places_[static_cast<std::size_t>(to.place)] = values.buffer;
    return values;
  }
  const Operand own = made(to.place);
  copy(here, values, own, Phase::forward, op.name);
  return own;
}

Operand Activations::written(const Place& here, const ActivationGradients::Contribution& to) {
  const Operand operand = made(to.written);
  if (to.written == to.place && to.copy_of >= 0) {
    copy(here, gradient(to.copy_of), operand, Phase::backward, name_of_gradient(to.place));
  }
  return operand;
}

void Activations::merge(const Place& here, const ActivationGradients::Contribution& to, const std::string& name) {
  if (to.written == to.place) return;
  const Operand sum = made(to.place);
  if (to.copy_of >= 0) copy(here, gradient(to.copy_of), sum, Phase::backward, name);
  const Operand added = gradient(to.written);
  here.emit({.kernel = Kernel::accumulate,
             .phase = Phase::backward,
             .micro_batch = micro_batch_,
             .name = name,
             .inputs = {added},
             .outputs = {sum},
             .attributes = {{"elements", added.num_elements}}});
}

}  // namespace strata
