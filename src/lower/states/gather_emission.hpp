#pragma once

/// @file
/// Gathers of sharded parameters, lowered: what parameter_gathers says of a place of the order becomes buffers and
/// instructions there. Nothing is decided here.

#include <span>
#include <vector>

#include "ir/model/model_graph.hpp"
#include "ir/order/step_order.hpp"
#include "ir/plan/plan.hpp"
#include "lower/states/held_parameters.hpp"
#include "lower/states/parameter_gathers.hpp"
#include "lower/states/quantized_gather.hpp"
#include "lower/step/builder.hpp"

namespace strata {

class GatherEmission {
 public:
  /// Of one training step of the body, @p step relative to its first. @param order its items.  @param held p shards.
  GatherEmission(const Plan& plan, const ModelGraph& graph, const StepOrder& order, int step, ParameterGathers gathers,
                 const HeldParameters& held, ProgramBuilder& builder);

  /// @p here is before the first item.
  void at_beginning(const Place& here);
  /// @p here is before the kernels of operator @p op of the graph in item @p item of the order.
  void before_operator(const Place& here, int item, int op);
  /// What these kernels read of @p parameter, of the operator: the compute dtype. @throws InternalError if it is
  /// sharded and has not been gathered.
  Operand weight(int item, int op, int parameter) const;

  /// @p parameters, in their order, as messages of overlap.spread_bytes have them; who is not spread stands alone.
  std::vector<std::vector<int>> messages_of(std::span<const int> parameters) const;
  /// The p shards are put together again from what their ranks have updated in training step @p step, relative: 0 or
  /// -1.
  /// @param message one of messages_of().
  void spread(const Place& here, std::span<const int> message, int step) const;

 private:
  void issue(const Place& here, const ActionRange& actions);
  void issue(const Place& here, const GatherAction& action);
  void gather(const Place& here, const GatherAction& action, const Operand& from, int group);
  void keep_secondary(const Place& here, const GatherAction& action);
  /// A buffer for all elements of the copy that @p action makes.
  Operand made_copy(const GatherAction& action);
  const Parameter& parameter_of(int parameter) const { return graph_.parameters[static_cast<std::size_t>(parameter)]; }
  /// Where another rank owns @p parameter: what is here of it for the pass of @p item.
  Operand visiting(const OrderItem& item, int parameter) const;
  /// This rank's p shard of @p version of a parameter: 0 = θ_t of training step t, 1 = θ_{t-1}.
  Operand shard_of(int parameter, int version = 0) const {
    return builder_.whole(held_.buffers.weight(parameter, step_ - version));
  }

  const Plan& plan_;
  const ModelGraph& graph_;
  const StepOrder& order_;
  int step_;
  const ParameterGathers gathers_;
  const HeldParameters& held_;
  ProgramBuilder& builder_;
  QuantizedGather quantized_;
  // What became of the gathers' numbers in the Program.
  std::vector<int> copies_;             ///< by copy: its buffer
  std::vector<int> packed_;             ///< by copy: the buffer of its blocks of codes
  std::vector<Operand> second_shards_;  ///< by parameter: this rank's part
};

}  // namespace strata
