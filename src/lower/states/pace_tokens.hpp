#pragma once

/// @file
/// The tokens by which the replicas of a ring keep their distance (ring_pace), lowered: messages of four bytes, whose
/// content nobody reads. One comes from the replica before in front of a pass, whose kernels wait for it; one goes to
/// the replica behind when the pass is over. An update is no part of the pass that it stands behind.

#include <optional>
#include <vector>

#include "ir/order/step_order.hpp"
#include "lower/states/ring_links.hpp"
#include "lower/step/builder.hpp"

namespace strata {

/// What tokens are read from and written to; lasts for the whole run.
class TokenBuffers {
 public:
  explicit TokenBuffers(ProgramBuilder& builder);
  /// Prologue.
  void initialize(const Place& here) const;
  Operand sent() const { return builder_.whole(sent_); }
  Operand received() const { return builder_.whole(received_); }

 private:
  ProgramBuilder& builder_;
  int sent_, received_;
};

class PaceTokens {
 public:
  /// @param order of one training step.
  PaceTokens(const RingLinks& links, const StepOrder& order, const TokenBuffers& buffers);

  /// @p here is before the kernels of item @p item.
  void before_item(const Place& here, int item) const;
  /// @p here is behind them.
  void behind_item(const Place& here, int item) const;

 private:
  Instruction message(Collective kind, int item, int from, int to, const RingPace::Pass& other) const;

  const RingLinks& links_;
  const RingPace& pace_;
  const StepOrder& order_;
  const TokenBuffers& buffers_;
  std::vector<int> begins_, ends_;  ///< by item: the pass whose first or last item it is; -1: of none
};

}  // namespace strata
