#pragma once

/// @file
/// AMSP's cΦ/s_p + kΦ/s_os, with c and k the plan's bytes of a parameter and of its optimizer states: what a rank holds
/// from step to step, shards rounded up as they are cut, and the fullest rank's share where whole tensors are dealt. A
/// bound in closed form: every Program of these factors needs at least this, so that of 121 triples most are left out
/// before a Program is asked, of which even a small one takes as long as a thousand of these.

#include <cstdint>
#include <map>
#include <vector>

#include "ir/model/model_graph.hpp"
#include "ir/plan/plan.hpp"

namespace strata {

class StateBytes {
 public:
  /// @param plan everything but the factors; equal decisions for all operators. It outlives this.
  StateBytes(const ModelGraph& graph, const Plan& plan);

  std::int64_t parameters(const StateFactors& state) const;
  std::int64_t optimizer(const StateFactors& state) const;
  /// Of the fullest rank. @p state is legal.
  std::int64_t least(const StateFactors& state) const { return parameters(state) + optimizer(state); }

 private:
  /// Elements of the fullest rank where each parameter's p shard is cut into, or dealt to, @p num_parts.
  std::int64_t elements_held(int parameter_ranks, int num_parts) const;

  const Plan& plan_;
  std::vector<std::int64_t> sizes_;                 ///< elements by parameter
  mutable std::map<int, std::vector<int>> owners_;  ///< inter-tensor: by number of owners, by parameter
};

}  // namespace strata
