#pragma once

/// @file
/// Which buffer holds which tensor of a micro-batch, and which holds its gradient, on one part of a rank. Each is said
/// once, where it is made: of a tensor that is made in forward and again in a recomputation both are known, and whoever
/// reads it behind that reads the second. Buffers may be shared: an in-place operator writes its output over its input,
/// and gradients may be in one place (activation_gradients).

#include <span>
#include <string>
#include <vector>

#include "ir/model/model_graph.hpp"
#include "ir/plan/plan.hpp"
#include "lower/step/activation_gradients.hpp"
#include "lower/step/builder.hpp"
#include "lower/step/tensor_uses.hpp"

namespace strata {

class Activations {
 public:
  /// @param gradients of the part.  @param num_samples of one micro-batch on this rank, by tensor.
  Activations(const ModelGraph& graph, const TensorUses& uses, const ActivationGradients& gradients, DType compute,
              std::span<const std::int64_t> num_samples, int micro_batch, ProgramBuilder& builder);

  /// @throws InternalError if nothing has produced it.
  Operand value(int tensor) const;
  /// A new buffer for the tensor.
  Operand produce(int tensor);
  /// The tensor takes over the buffer of @p other, whose content is lost.
  Operand produce_in_place(int tensor, int other);

  /// True where writing `op`'s output over its input number @p input loses nothing that anybody still reads.
  bool may_overwrite(const Operator& op, int input) const {
    return uses_.has_one_reader(op.inputs[static_cast<std::size_t>(input)], 0);
  }

  /// True for activations that depend on a parameter.
  bool needs_gradient(int tensor) const { return uses_.needs_gradient[static_cast<std::size_t>(tensor)]; }

  /// What the backward of an operator of the graph does to gradients.
  const ActivationGradients::OfOperator& gradients_of(int op) const {
    return gradients_.operators[static_cast<std::size_t>(op)];
  }
  /// Of gradients that cross the beginning of the part.
  Operand sent_gradient(int tensor) const { return gradient(gradients_.sent.at(tensor)); }
  /// Of gradients that cross its end: a new buffer.
  Operand received_gradient(int tensor) { return made(gradients_.received.at(tensor)); }
  /// What is in @p place of the gradients. @throws InternalError if nothing has been put there.
  Operand gradient(int place) const;

  /// Where the loss @p op leaves the gradient of its first input, in forward: where that is, or in a copy of it.
  Operand turn_into_gradient(const Place& here, const Operator& op, const ActivationGradients::Contribution& to);
  /// Where a kernel puts its contribution @p to a gradient.
  Operand written(const Place& here, const ActivationGradients::Contribution& to);
  /// What has been put there is added where the kernel has not done it. @p name for the instruction.
  void merge(const Place& here, const ActivationGradients::Contribution& to, const std::string& name);

  std::int64_t num_samples(int tensor) const { return num_samples_[static_cast<std::size_t>(tensor)]; }
  int micro_batch() const { return micro_batch_; }

 private:
  void put(int tensor, int buffer);
  Operand new_buffer(const std::string& name, int tensor);
  /// The buffer of @p place, which the first to ask makes.
  Operand made(int place);
  void copy(const Place& here, const Operand& from, const Operand& to, Phase phase, const std::string& name) const;
  std::string name_of_gradient(int place) const;

  const ModelGraph& graph_;
  const TensorUses& uses_;
  const ActivationGradients& gradients_;
  DType compute_;
  std::span<const std::int64_t> num_samples_;
  int micro_batch_;
  ProgramBuilder& builder_;
  std::vector<int> first_;   ///< by tensor: its buffer, -1: none
  std::vector<int> again_;   ///< by tensor: its buffer once it has been made again, -1: it has not
  std::vector<int> places_;  ///< by place of gradients: its buffer, -1: none
};

}  // namespace strata
