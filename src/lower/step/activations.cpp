#include "lower/step/activations.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "ir/model/backward_reads.hpp"

namespace strata {

TensorUses::TensorUses(const ModelGraph& graph, std::span<const RecomputedRegion> regions)
    : needs_gradient(tensors_with_gradient(graph)),
      num_consumers(graph.tensors.size(), 0),
      num_saved_for(graph.tensors.size(), 0) {
  for (const Operator& op : graph.operators) {
    for (const int t : op.inputs) ++num_consumers[static_cast<std::size_t>(t)];
    for (const int t : saved_for_backward(op)) ++num_saved_for[static_cast<std::size_t>(t)];
  }
  for (const RecomputedRegion& region : regions) {
    for (const int o : region.runs_again) {
      for (const int t : graph.operators[static_cast<std::size_t>(o)].inputs) {
        if (!std::ranges::binary_search(region.forgotten, t)) ++num_saved_for[static_cast<std::size_t>(t)];
      }
    }
  }
}

void BuffersOfTensors::set(int tensor, int buffer) {
  int& now = buffers_[static_cast<std::size_t>(tensor)];
  if (now >= 0) --num_tensors_[static_cast<std::size_t>(now)];
  now = buffer;
  if (buffer < 0) return;
  const auto b = static_cast<std::size_t>(buffer);
  if (b >= num_tensors_.size()) num_tensors_.resize(b + 1, 0);
  ++num_tensors_[b];
}

Activations::Activations(const ModelGraph& graph, const TensorUses& uses, DType compute,
                         std::span<const std::int64_t> num_samples, int micro_batch, ProgramBuilder& builder)
    : graph_(graph),
      uses_(uses),
      compute_(compute),
      num_samples_(num_samples),
      micro_batch_(micro_batch),
      builder_(builder),
      values_(graph.tensors.size()),
      gradients_(graph.tensors.size()),
      destinations_(graph.tensors.size()) {}

Operand Activations::new_buffer(const std::string& name, int tensor, Category category) {
  const Tensor& description = graph_.tensors[static_cast<std::size_t>(tensor)];
  return builder_.whole(builder_.add_buffer({.name = name,
                                             .num_elements = num_samples(tensor) * description.elements_per_sample(),
                                             .dtype = dtype_of(description.role, compute_),
                                             .category = category}));
}

Operand Activations::value(int tensor) const {
  const int buffer = values_.of(tensor);
  STRATA_INVARIANT(buffer >= 0, "nothing has produced " + graph_.tensors[static_cast<std::size_t>(tensor)].name);
  return builder_.whole(buffer);
}

Operand Activations::produce(int tensor) {
  const Operand operand =
      new_buffer(graph_.tensors[static_cast<std::size_t>(tensor)].name, tensor, Category::activation);
  values_.set(tensor, operand.buffer);
  return operand;
}

Operand Activations::produce_in_place(int tensor, int other) {
  const Operand operand = value(other);
  values_.set(tensor, operand.buffer);
  values_.set(other, -1);
  return operand;
}

bool Activations::has_one_reader(int tensor, int num_saved_for) const {
  const auto t = static_cast<std::size_t>(tensor);
  // Inputs of the model have no gradient and are cheap, but they belong to whoever loaded them.
  return graph_.tensors[t].role == TensorRole::activation && uses_.num_consumers[t] == 1 &&
         uses_.num_saved_for[t] == num_saved_for && has(tensor) && values_.num_tensors(values_.of(tensor)) == 1;
}

bool Activations::may_overwrite(const Operator& op, int input) const {
  return has_one_reader(op.inputs[static_cast<std::size_t>(input)], 0);
}

Operand Activations::turn_into_gradient(const Operator& op) {
  const int tensor = op.inputs.front();
  const Operand values = value(tensor);
  if (has_one_reader(tensor, 1)) {  // which saves it for this gradient
    drop(tensor);
    share_gradient(tensor, values.buffer);
    return values;
  }
  const Operand own =
      new_buffer(graph_.tensors[static_cast<std::size_t>(tensor)].name + "/gradient", tensor, Category::activation);
  builder_.emit({.kernel = Kernel::copy,
                 .phase = Phase::forward,
                 .micro_batch = micro_batch_,
                 .name = op.name,
                 .inputs = {values},
                 .outputs = {own},
                 .attributes = {{"elements", own.num_elements}}});
  share_gradient(tensor, own.buffer);
  return own;
}

Operand Activations::gradient(int tensor) const {
  const int buffer = gradients_.of(tensor);
  STRATA_INVARIANT(buffer >= 0, "no gradient of " + graph_.tensors[static_cast<std::size_t>(tensor)].name);
  return builder_.whole(buffer);
}

Activations::Taken Activations::take_gradient(int tensor) {
  const Operand operand = gradient(tensor);
  gradients_.set(tensor, -1);
  return {operand, gradients_.num_tensors(operand.buffer) == 0};
}

void Activations::share_gradient(int tensor, int buffer) {
  STRATA_INVARIANT(!has_gradient(tensor), "a gradient is there already");
  gradients_.set(tensor, buffer);
}

void Activations::detach(int tensor, const std::string& name) {
  const Operand shared = gradient(tensor);
  const Operand own =
      new_buffer(graph_.tensors[static_cast<std::size_t>(tensor)].name + "/gradient", tensor, Category::activation);
  builder_.emit({.kernel = Kernel::copy,
                 .phase = Phase::backward,
                 .micro_batch = micro_batch_,
                 .name = name,
                 .inputs = {shared},
                 .outputs = {own},
                 .attributes = {{"elements", own.num_elements}}});
  gradients_.set(tensor, own.buffer);
}

Activations::Destination Activations::gradient_destination(int tensor, bool can_accumulate) {
  return destinations_[static_cast<std::size_t>(tensor)] = new_destination(tensor, can_accumulate);
}

Activations::Destination Activations::new_destination(int tensor, bool can_accumulate) {
  const std::string name = graph_.tensors[static_cast<std::size_t>(tensor)].name + "/gradient";
  if (!has_gradient(tensor)) {
    const Operand operand = new_buffer(name, tensor, Category::activation);
    gradients_.set(tensor, operand.buffer);
    return {operand, false};
  }
  if (!can_accumulate) {
    return {new_buffer(name, tensor, Category::activation), false};
  }
  // Somebody who has not run yet still reads the shared buffer: give this tensor its own copy first.
  if (gradients_.num_tensors(gradients_.of(tensor)) > 1) detach(tensor, name);
  return {gradient(tensor), true};
}

void Activations::merge(int tensor, const Destination& destination, const std::string& name) {
  const int buffer = gradients_.of(tensor);
  if (destination.operand.buffer == buffer) {
    return;
  }
  if (gradients_.num_tensors(buffer) > 1) detach(tensor, name);
  builder_.emit({.kernel = Kernel::accumulate,
                 .phase = Phase::backward,
                 .micro_batch = micro_batch_,
                 .name = name,
                 .inputs = {destination.operand},
                 .outputs = {gradient(tensor)},
                 .attributes = {{"elements", destination.operand.num_elements}}});
}

}  // namespace strata
