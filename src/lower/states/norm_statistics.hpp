#pragma once

/// @file
/// Running means and variances of batch norms: what training keeps for evaluation.
///
/// As one rank that takes the step's micro-batches in the order of their samples would have them: behind each,
/// running = (1 - momentum) · running + momentum · its statistics, as PyTorch. With K of them in a step that is
/// (1 - momentum)^K · running + Σ momentum (1 - momentum)^(K - 1 - k) · statistics of k, a sum over micro-batches; so
/// ranks that take some of them each keep their part of the sum, nothing is exchanged in training, and whoever wants
/// the value adds up what all ranks have. The value before the first step, mean 0 and variance 1, is the part of the
/// rank that takes the first samples; of replicas that take micro-batches by turns, in a pyramid, of the first one. Of
/// ranks that compute the same samples one keeps statistics.

#include <cstdint>
#include <vector>

#include "ir/model/model_graph.hpp"
#include "ir/plan/plan.hpp"
#include "lower/layouts/laid_out_graph.hpp"
#include "lower/step/builder.hpp"
#include "lower/step/rank_place.hpp"

namespace strata {

class NormStatistics {
 public:
  /// Of the batch norms that a rank computes at @p place. @p model outlives this.
  NormStatistics(const Plan& plan, const LaidOutGraph& model, const RankPlace& place, ProgramBuilder& builder);
  /// Prologue.
  void initialize(const Place& here) const;
  /// Behind the forward of operator @p op, which is a batch norm, of micro-batch @p micro_batch of the step.
  /// @param is_first of those that this rank takes of the step.  @param statistics what the forward has written, of
  /// @p rows rows.
  void behind_forward(const Place& here, int op, int micro_batch, bool is_first, std::int64_t rows,
                      const Operand& statistics) const;

 private:
  struct Kept {
    int mean = -1, variance = -1;  ///< buffers; -1: this rank keeps none of the operator
  };
  const ModelGraph& graph_;
  ProgramBuilder& builder_;
  int micro_batches_;
  std::vector<SampleParts> parts_;  ///< by operator
  std::vector<Kept> kept_;          ///< by operator
  bool is_first_;                   ///< of the ranks that hold these operators for other micro-batches
};

}  // namespace strata
