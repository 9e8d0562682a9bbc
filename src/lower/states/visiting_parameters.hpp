#pragma once

/// @file
/// Where a rank has the parameters of stages that it does not own, for a visit: made once, for all training steps of a
/// body. A slot is a buffer with room for the largest visit that comes there; a visit's parameters stand in it one
/// behind the other, each on a boundary of the arena's alignment. A forward has all parameters of its stage, a backward
/// those that backward kernels or a recomputation read: no biases and no embeddings.

#include <cstdint>
#include <span>
#include <vector>

#include "ir/model/model_graph.hpp"
#include "ir/order/step_order.hpp"
#include "ir/plan/plan.hpp"
#include "lower/order/step_shape.hpp"
#include "lower/step/builder.hpp"
#include "partition/walking_parameters.hpp"

namespace strata {

class VisitingParameters {
 public:
  /// @param order of the body.  @param recomputation by its segments.  @param walk, graph outlive this.
  VisitingParameters(const Plan& plan, const ModelGraph& graph, const StepOrder& order,
                     std::span<const SegmentRecomputation> recomputation, const ParameterWalk& walk,
                     ProgramBuilder& builder);

  int visit_of(int stage, bool backward) const { return walk_.visit_of(stage, backward); }
  /// What of the stage comes for visit @p visit, ascending.
  const std::vector<int>& carried(int visit) const { return carried_[static_cast<std::size_t>(visit)]; }
  /// @p parameter while visit @p visit of training step @p step, relative to the body's first, lasts.
  /// @throws InternalError if it does not come for that visit.
  Operand weight(int step, int visit, int parameter) const;

 private:
  Operand weight_at(int buffer, int visit, int parameter) const;

  const ModelGraph& graph_;
  const ParameterWalk& walk_;
  std::int64_t elements_per_boundary_;
  std::vector<std::vector<int>> carried_;  ///< by visit
  std::vector<std::vector<int>> slots_;    ///< by step and visit: a buffer, -1: the rank owns the stage
};

}  // namespace strata
