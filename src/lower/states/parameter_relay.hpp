#pragma once

/// @file
/// Updated parameters on their way to the replicas of a ring, lowered: what replica_ring says becomes messages at the
/// places of a training step.
///
/// θ_{t+1} leaves directly behind the update that makes it, and its messages belong to training step t as that does,
/// though its readers receive it, and hand it on, among the items of step t+1: initial values are sent to nobody, and
/// when step t is over, every reader has θ_{t+1}. But one that has no room beside θ_t, which it reads once more in step
/// t+1: for it the messages belong to that step, and leave when it begins.
///
/// Both ends of a stream have its stages in one order: from the last one down where they come from the update, which
/// goes that way, or go on behind a backward; from the first one up where they go on behind a forward. Where replicas
/// keep a distance, what goes on behind a pass waits for it, and so never goes with what goes on behind another one. A
/// first user updates one stage, before its forward of it, and sends it then.

#include <span>
#include <vector>

#include "ir/model/model_graph.hpp"
#include "ir/order/step_order.hpp"
#include "lower/states/held_parameters.hpp"
#include "lower/states/ring_links.hpp"
#include "lower/step/builder.hpp"

namespace strata {

class ParameterRelay {
 public:
  /// @param order of the training step @p step of a body, relative to its first.
  ParameterRelay(const RingLinks& links, const ModelGraph& graph, const StepOrder& order, int step,
                 const HeldParameters& held, ProgramBuilder& builder);

  /// @p here is before the first item.
  void at_beginning(const Place& here);
  /// @p here is before the kernels of item @p item.
  void before_item(const Place& here, int item);
  /// @p here is behind the kernels of item @p item, a pass.
  void behind_item(const Place& here, int item);
  /// The same of an update.
  void behind_update(const Place& here, int item);

 private:
  /// θ_t of training step t = @p version, relative, to all who have it by @p arrival.  @param step to which its
  /// messages belong, relative to the training step of this place.  @param after see Place::emit.
  void send(const Place& here, int stage, Arrival arrival, int version, int step, std::span<const int> after = {});
  void receive(const Place& here, int stage);
  const ReplicaRing::OfStage& at(int stage) const { return ring_.stages[static_cast<std::size_t>(stage)]; }
  Instruction message(Collective kind, int stage, int peer, Arrival arrival, int parameter) const;

  const RingLinks& links_;
  const ReplicaRing& ring_;
  const ModelGraph& graph_;
  const StepOrder& order_;
  const StepShape& shape_;
  int step_;
  const HeldParameters& held_;
  ProgramBuilder& builder_;
  std::vector<int> begins_forward_;                ///< by item: the stage whose forward it is the first of; -1: of none
  std::vector<int> ends_forward_, ends_backward_;  ///< by item: the stage whose pass it is the last of; -1: of none
};

}  // namespace strata
