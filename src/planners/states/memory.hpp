#pragma once

/// @file
/// Bytes of one rank under given factors, before anything is lowered: AMSP's
///     D = 2Φ/s_p + 2Φ/s_g + 12Φ/s_os + D_act + D_tmp
/// with the element sizes of the plan for 2, 2 and 12, shards rounded up as they are cut, and the fullest rank's share
/// where whole tensors are dealt (12Φ/s_os is its mean). The sum is taken kernel by kernel, where it is largest:
/// states, gradients and what is gathered or reduced are those of the Program to the byte (step_memory.hpp),
/// activations what backward still reads.

#include <cstdint>
#include <map>
#include <vector>

#include "ir/model/model_graph.hpp"
#include "ir/plan/plan.hpp"
#include "planners/states/step_memory.hpp"

namespace strata {

/// At the fullest moment of a step.
struct MemoryAccount {
  std::int64_t parameters = 0;
  std::int64_t gradients = 0;    ///< those that exist by then
  std::int64_t optimizer = 0;    ///< masters where kernels read another dtype, and moments
  std::int64_t activations = 0;  ///< D_act: what one micro-batch keeps for its backward
  std::int64_t temporary = 0;    ///< D_tmp: gradients of activations, gathered parameters, what is about to be reduced
  std::int64_t least = 0;        ///< what every Program needs: certain to the byte, without gradients of activations
  std::int64_t total() const { return parameters + gradients + optimizer + activations + temporary; }
};

/// f32 masters, where kernels read another dtype, and moments.
std::int64_t optimizer_bytes_per_element(const Plan& plan);

/// What is there while one operator's backward runs.
struct BackwardMoment {
  std::int64_t activations = 0;           ///< bytes kept by forward, or computed again, and still needed
  std::int64_t activation_gradients = 0;  ///< bytes of the operator's own, in and out
};

/// One an operator, in graph order, for a micro-batch of @p num_samples. A recomputed block keeps what it reads from
/// outside; the rest is there again during its own backward.
std::vector<BackwardMoment> backward_moments(const ModelGraph& graph, DType compute, Recompute recompute,
                                             std::int64_t num_samples);

class StateMemory {
 public:
  /// @param plan everything but the factors: mesh, batch, recomputation, dtypes, optimizer, overlap. Equal decisions
  /// for all operators.
  StateMemory(const ModelGraph& graph, const Plan& plan);

  /// Of the fullest rank. @p state is legal.
  MemoryAccount account(const StateFactors& state) const;

  /// Parameters, optimizer states, gradients and what is gathered or on its way, of the fullest rank at the moment when
  /// they are most: the Program's own bytes of these.
  std::int64_t states_and_transfers(const StateFactors& state) const;

 private:
  std::int64_t parameter_bytes(const StateFactors& state) const;
  std::int64_t optimizer_bytes(const StateFactors& state) const;
  /// Elements of the fullest rank where each parameter's p shard is cut into, or dealt to, s_os/s_p ranks.
  std::int64_t elements_held(int parameter_ranks, int part_ranks) const;

  const Plan& plan_;
  std::vector<std::int64_t> sizes_;                 ///< elements by parameter
  mutable std::map<int, std::vector<int>> owners_;  ///< inter-tensor: by number of owners, by parameter
  std::vector<BackwardMoment> moments_;
  StepMemory step_;
  const std::vector<int>& owners(int num_owners) const;
  Shares shares(const StateFactors& state) const;
};

}  // namespace strata
