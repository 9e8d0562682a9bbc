#pragma once

/// @file
/// One operator at one micro-batch → its kernels, forward and backward.

#include "ir/model/model_graph.hpp"
#include "ir/plan/plan.hpp"
#include "lower/layouts/axis_groups.hpp"
#include "lower/layouts/axis_rings.hpp"
#include "lower/layouts/laid_out_graph.hpp"
#include "lower/states/parameter_states.hpp"
#include "lower/step/activations.hpp"
#include "lower/step/builder.hpp"
#include "partition/operator_splitting.hpp"

namespace strata {

/// Everything the expansion of an operator touches.
struct OperatorLowering {
  const Plan& plan;
  const LaidOutGraph& model;
  const AxisGroups* groups;  ///< null: no operator is laid out
  const AxisRings* rings;    ///< as above
  ProgramBuilder& builder;
  const Place& here;  ///< where its kernels go
  Activations& activations;
  ParameterStates& parameters;
  std::int64_t first_sample_of_all = 0;  ///< of this micro-batch, in the step's global batch
  int item = -1;                         ///< of the order: whose kernels these are

  /// @p phase forward or recompute.
  void forward(const Operator& op, Phase phase);
  void backward(const Operator& op);

 private:
  const ModelGraph& graph() const { return model.graph; }
  const Tensor& tensor(int t) const { return model.graph.tensors[static_cast<std::size_t>(t)]; }
  std::int64_t first_sample(const Operator& op, bool is_counted_from) const;
  // Operators whose rows are split over ranks: split_rows.cpp.
  AxisSet split_over(int tensor) const;
  std::int64_t num_parts_over(AxisSet over) const;
  Operand exchanged(const Operator& op, const Operand& partial, AxisSet over, Phase phase);
  Operand partial_rows(const Operator& op, std::int64_t num_rows, std::int64_t width);
  void split_norm_forward(const Operator& op, AxisSet over, Phase phase);
  void split_norm_backward(const Operator& op, AxisSet over);
  void split_cross_entropy(const Operator& op, AxisSet over, Phase phase);
  // Changes of layout: redistribution.cpp.
  void redistribute_forward(const Operator& op, Phase phase);
  void redistribute_backward(const Operator& op);
  Operand permuted(const Operator& op, const Operand& from, const Permutation& permutation, const Operand* into,
                   Phase phase);
  Operand packed(const Operator& op, const Operand& tensor, const Packing& packing, const Operand* into, Phase phase);
  void unpack(const Operator& op, const Operand& parts, const Packing& packing, const Operand& tensor, Phase phase);
  void copy_block(const Operator& op, const StridedBlock& block, const Operand& from, const Operand& to, bool scatters,
                  Phase phase);
  void clear(const Operator& op, const Operand& tensor, Phase phase);
  Operand packed_buffer(const Operator& op, const char* suffix, const Operand& like);
  void redistribute(const Operator& op, const Operand& from, const Operand& to, const Movement& step, Phase phase);
  /// All ranks along @p over then have the sum of what each has.
  void sum_in_place(const Operator& op, const Operand& sum, AxisSet over, Phase phase);
  // Products by panels: summa.cpp.
  struct OwnPanels;
  class PanelStream;
  class PanelSums;
  OwnPanels inputs_of(const SummaPanels& s, const Operand& pieces) const;
  OwnPanels weights_of(const SummaPanels& s, const Operand& pieces) const;
  void summa_forward(const Operator& op, Phase phase);
  void summa_backward(const Operator& op);
  const SummaPanels& panels_of(const Operator& op) const;
  bool panels_block() const;  ///< the rank computes or communicates
  void wait_for_computation();
  void wait_for_panels();
  Operand panel_buffer(const std::string& name, std::int64_t num_elements, DType dtype);
  Instruction panel_kernel(Kernel kind, const Operator& op, std::int64_t width, Phase phase) const;
  /// Of a weight's gradient, parts as @p packing has them, to where it is kept.
  void put_weight_gradient(const Operator& op, const Operand& parts, const Packing& packing,
                           const GradientEmission::Destination& to);
  // Products by blocks on a ring: ring_product.cpp.
  struct BlocksOnRing;
  class TurnsOfBlocks;
  class GatheredBlocks;
  class ScatteredSums;
  void ring_forward(const Operator& op, Phase phase);
  void ring_backward(const Operator& op);
  const RingBlocks& ring_of(const Operator& op) const;
  BlocksOnRing blocks_on_ring(const Operator& op, const char* name, const Operand& own, Phase phase);
  Instruction block_kernel(Kernel kind, const Operator& op, int block, Phase phase) const;
  Instruction kernel(Kernel kernel, const Operator& op, Phase phase) const;
  /// What is left of it where this rank has nothing that it would read.
  void emit(Instruction&& in);
  void shape_attributes(const Operator& op, Instruction& in) const;
  Operand output(const Operator& op, int index, std::initializer_list<int> may_reuse);
  std::int64_t rows(int tensor, std::int64_t width) const;
  Operand slice_output(const Operator& op, const ColumnBlock& columns, Instruction& in);
  const ActivationGradients::OfOperator& gradients_of(const Operator& op) const {
    return activations.gradients_of(index_of(op));
  }
  Operand output_gradient(const Operator& op) const { return activations.gradient(gradients_of(op).output); }
  /// What kernels of @p op read of one of its parameters.
  Operand weight_of(const Operator& op, int parameter) const {
    return parameters.gathers().weight(item, index_of(op), parameter);
  }
  int index_of(const Operator& op) const { return static_cast<int>(&op - graph().operators.data()); }
  void emit_weight_gradient(const Operator& op, Instruction&& in);
  void emit_input_gradient(const Operator& op, Instruction&& in);
};

}  // namespace strata
