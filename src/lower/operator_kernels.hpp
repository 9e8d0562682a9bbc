#pragma once

/// @file
/// One operator at one micro-batch → its kernels, forward and backward.

#include "ir/model_graph.hpp"
#include "ir/operator_splitting.hpp"
#include "ir/plan.hpp"
#include "lower/activations.hpp"
#include "lower/builder.hpp"
#include "lower/parameter_states.hpp"

namespace strata {

/// Everything the expansion of an operator touches.
struct OperatorLowering {
  const Plan& plan;
  const ModelGraph& graph;
  ProgramBuilder& builder;
  Activations& activations;
  ParameterStates& parameters;
  std::int64_t first_sample = 0;  ///< of this micro-batch on this rank, in the step's global batch
  bool last_micro_batch = true;
  Activations::Destination slices_gradient{};  ///< of the input of the operator whose slices are going backward

  /// @p phase forward or recompute.
  void forward(const Operator& op, Phase phase);
  void backward(const Operator& op);

 private:
  Instruction kernel(Kernel kernel, const Operator& op, Phase phase) const;
  void shape_attributes(const Operator& op, Instruction& in) const;
  Operand output(const Operator& op, int index, std::initializer_list<int> may_reuse);
  std::int64_t rows(int tensor, std::int64_t width) const;
  Operand slice_output(const Operator& op, const ColumnBlock& columns, Instruction& in);
  Activations::Taken output_gradient(const Operator& op);
  Activations::Destination input_gradient(const Operator& op, int tensor, bool can_accumulate);
  void emit_weight_gradient(const Operator& op, Instruction in);
  void emit_input_gradient(const Operator& op, int input, Instruction in, bool can_accumulate,
                           const Activations::Taken* reuse = nullptr);
};

}  // namespace strata
