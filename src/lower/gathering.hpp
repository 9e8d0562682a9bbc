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

#include "ir/model_graph.hpp"
#include "ir/plan.hpp"
#include "ir/stages.hpp"
#include "lower/activations.hpp"
#include "lower/parameter_states.hpp"

namespace strata {

class Gathering {
 public:
  Gathering(const Plan& plan, const ModelGraph& graph, const Stage& stage, std::span<const OperatorDecision> decisions,
            const Activations& activations, ParameterStates& parameters);

  /// Around the kernels of operator @p o, by its index in the graph.
  void before_forward(int o, int micro_batch);
  void after_forward(int o);
  /// Around operators that are computed again.
  void before_recompute(int o, int micro_batch);
  void after_recompute(int o);
  /// The backward of a block begins, and @p next, before it in the graph, is recomputed after it.
  void before_backward_of_block(const Block& next, int micro_batch);
  void before_backward(int o, int micro_batch);
  void after_backward(int o);

 private:
  /// What is gathered together ahead of time: a block, or what stands before the first or behind the last one.
  struct Unit {
    int first = 0;
    int end = 0;
  };
  void gather(std::span<const int> parameters, Phase phase, int micro_batch);
  void gather_unit(const Unit& unit, int micro_batch);
  bool follows_slice(int o) const;
  void gather_next_slice(int o, Phase phase, int micro_batch);
  void gather_before(int o, int micro_batch);
  void arrive(std::span<const int> parameters, Phase phase, int micro_batch);
  void release(int o);
  bool recomputes(int o) const;
  void keep_what_is_read_again();
  std::vector<int> read_by_backward(int o) const;
  const Operator& at(int o) const { return graph_.operators[static_cast<std::size_t>(o)]; }

  const Plan& plan_;
  const ModelGraph& graph_;
  Stage stage_;
  std::span<const OperatorDecision> decisions_;
  const Activations& activations_;
  ParameterStates& parameters_;
  std::vector<Unit> units_;
  std::vector<std::size_t> unit_of_;  ///< by operator of the stage
  bool ahead_in_forward_;
  bool ahead_in_backward_;
};

}  // namespace strata
