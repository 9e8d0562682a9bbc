#pragma once

/// @file
/// Parameters on their way from rank to rank for a visit, lowered: what parameter_walk says becomes messages at the
/// places of a training step. They are received before the first item that reads them, as soon as their slot is free,
/// and handed on behind the last one. An owner sends the version of the step before as its repetition begins, since the
/// ranks that read it may be ahead of it, and the step's own behind its forward, where the update has been in any case.

#include <vector>

#include "ir/model/model_graph.hpp"
#include "ir/order/step_order.hpp"
#include "lower/states/held_parameters.hpp"
#include "lower/states/walk_links.hpp"
#include "lower/step/builder.hpp"

namespace strata {

class WalkMessages {
 public:
  /// @param order of the training step @p step of a body, relative to its first.
  WalkMessages(const WalkLinks& links, const ModelGraph& graph, const StepOrder& order, int step,
               const HeldParameters& held, ProgramBuilder& builder);

  /// @p here begins the repetition that the training step is the last of.
  void at_beginning(const Place& here) const { depart(here, false); }
  /// @p here is before the kernels of item @p item.
  void before_item(const Place& here, int item) const;
  /// @p here is behind them.
  void behind_item(const Place& here, int item) const;

 private:
  void depart(const Place& here, bool fresh) const;
  void message(const Place& here, Collective kind, int visit, int peer, int group, int stream, bool fresh) const;

  const WalkLinks& links_;
  const ParameterWalk& walk_;
  const ModelGraph& graph_;
  int step_;
  const HeldParameters& held_;
  ProgramBuilder& builder_;
  std::vector<int> begins_, ends_;  ///< by item: the visit that it is the first, or the last, of; -1: of none
  int behind_own_forward_ = -1;     ///< item
};

}  // namespace strata
