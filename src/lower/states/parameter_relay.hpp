#pragma once

/// @file
/// Updated parameters on their way to the replicas of a ring, lowered: what replica_ring says becomes messages at the
/// places of a training step. Both ends of a stream have its stages in one order: from the last one down where they
/// come from the update, which goes that way, or go on behind a backward; from the first one up where they go on behind
/// a forward. Where replicas keep a distance, what goes on behind a pass waits for it, and so never goes with what goes
/// on behind another one. A first user updates one stage, before its forward of it, and sends it then.

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

  void at_beginning();
  /// Item @p item is next.
  void before_item(int item);
  /// The kernels of item @p item have been issued.
  void behind_item(int item);

 private:
  /// To all who have it by @p arrival.  @param after see ProgramBuilder::emit.
  void send(int stage, Arrival arrival, std::span<const int> after = {});
  void receive(int stage);
  const ReplicaRing::OfStage& at(int stage) const { return ring_.stages[static_cast<std::size_t>(stage)]; }
  void send_updated(int stage);
  Instruction message(Collective kind, int stage, int peer, Arrival arrival, int parameter) const;

  const RingLinks& links_;
  const ReplicaRing& ring_;
  const ModelGraph& graph_;
  const StepShape& shape_;
  int step_;
  const HeldParameters& held_;
  ProgramBuilder& builder_;
  std::vector<int> begins_forward_;                ///< by item: the stage whose forward it is the first of; -1: of none
  std::vector<int> ends_forward_, ends_backward_;  ///< by item: the stage whose pass it is the last of; -1: of none
};

}  // namespace strata
