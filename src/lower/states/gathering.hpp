#pragma once

/// @file
/// When sharded parameters are gathered and let go, by the plan's overlap (AMSP, table V):
///   gather           none: before the operator that reads them, under nothing
///                    next_layer: those of the next block, under this one
///   gather_backward  none: as above
///                    next_module: those of the next operator in backward order, under this one; where that one's block
///                    is recomputed first, all of that block, under the backward of this one
/// Of an operator in slices only the first is gathered with a block: each next one under the slice before it, so that
/// no more than two are there at once. What a recomputation has gathered stays for the backward behind it, or is
/// gathered again (gathered_after_recompute).
/// Where parameters have a second shard (ZeRO++), it is kept of those alone that backward or a recomputation gathers:
/// neither reads biases or embeddings, unless the operator runs again.

#include <span>
#include <vector>

#include "ir/model/model_graph.hpp"
#include "ir/order/step_order.hpp"
#include "ir/plan/plan.hpp"
#include "lower/states/parameter_states.hpp"
#include "lower/step/activations.hpp"

namespace strata {

class Gathering {
 public:
  /// @param stage of this rank.
  Gathering(const Plan& plan, const ModelGraph& graph, const StepShape& shape, int stage, const TensorUses& uses,
            ParameterStates& parameters);

  /// Around the kernels of operator @p o, by its index in the graph, in the forward @p item.
  void before_forward(int o, const OrderItem& item);
  void after_forward(int o);
  /// Around operators that are computed again.
  void before_recompute(int o, int micro_batch);
  void after_recompute(int o);
  /// A backward begins whose next item is a recompute of the operators @p next.
  void before_backward_of_block(std::span<const int> next, int micro_batch);
  void before_backward(int o, int micro_batch);
  void after_backward(int o);

 private:
  void gather(std::span<const int> parameters, Phase phase, int micro_batch);
  void gather_segment(const Segment& segment, int micro_batch);
  bool follows_slice(int o) const;
  void gather_next_slice(int o, Phase phase, int micro_batch);
  void gather_before(int o, int micro_batch);
  void arrive(std::span<const int> parameters, Phase phase, int micro_batch);
  void release(int o);
  void keep_what_is_read_again();
  std::vector<int> read_by_backward(int o) const;
  const Operator& at(int o) const { return graph_.operators[static_cast<std::size_t>(o)]; }

  const Plan& plan_;
  const ModelGraph& graph_;
  const StepShape& shape_;
  int stage_;
  const TensorUses& uses_;
  ParameterStates& parameters_;
  bool ahead_in_forward_;
  bool ahead_in_backward_;
};

}  // namespace strata
