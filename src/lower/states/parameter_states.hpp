#pragma once

/// @file
/// What becomes of the parameters and optimizer states of one rank in one training step: gathers, sums of gradients,
/// updates. Their buffers and initial values are in parameter_buffers; when parameters are gathered is in
/// parameter_gathers, how gradients are summed in gradient_sums.
///
/// A rank keeps its p shard of every parameter in the compute dtype and its os shard of master values and moments
/// (shards.hpp). A parameter that is sharded is gathered before a kernel reads it. After the update the p shard is put
/// together again over the os/p ranks: all-gathers a tensor where each updated a chunk, broadcasts where each updated
/// whole tensors.
///
/// A stage holds the parameters that its operators use. One that several stages use (a head tied to the embedding) is
/// held by each of them, as in Megatron-LM: equal initial values, then equal updates, because the copies' gradients are
/// summed before each.

#include <map>
#include <span>
#include <vector>

#include "ir/model/model_graph.hpp"
#include "ir/order/step_order.hpp"
#include "ir/plan/plan.hpp"
#include "lower/order/step_shape.hpp"
#include "lower/states/gather_emission.hpp"
#include "lower/states/gradient_buckets.hpp"
#include "lower/states/gradient_emission.hpp"
#include "lower/states/held_parameters.hpp"
#include "lower/states/replica_links.hpp"
#include "lower/states/ring_links.hpp"
#include "lower/step/builder.hpp"
#include "partition/shards.hpp"

namespace strata {

/// Whom a rank shares parameters with: groups of its Program, -1: nobody.
struct ParameterGroups {
  std::vector<int> data;         ///< by grid: the replicas
  int stages = -1;               ///< a rank of each stage: together they hold every parameter
  std::map<int, Copies> copies;  ///< by parameter
  int everybody = -1;            ///< all ranks, where operators are laid out
  /// Where operators are laid out: how many ranks hold each parameter's part. Empty: the groups above say it.
  std::vector<std::int64_t> num_copies;
};

class ParameterStates {
 public:
  /// @param order of the training step @p step of a body, relative to its first.
  /// @param recomputation by segment of the order.  @param ring null: there is none.  @param replicas null: the stage
  /// has none.
  ParameterStates(const Plan& plan, const ModelGraph& graph, const StepOrder& order, int step,
                  std::span<const SegmentRecomputation> recomputation, const HeldParameters& held,
                  const ParameterGroups& groups, const RingLinks* ring, const ReplicaLinks* replicas,
                  ProgramBuilder& builder);

  GatherEmission& gathers() { return gathers_; }
  GradientEmission& gradients() { return gradients_; }

  /// Gradient norm and clipping where the plan asks for it, then the optimizer, bucket by bucket, of @p parameters
  /// whose sums are complete.
  void update(const Place& here, std::span<const int> parameters);

 private:
  int gradient_norm(const Place& here);
  void sum_over_groups(const Place& here, int sum);
  void sum_over_everybody(const Place& here, int sum);
  void add_squares(const Place& here, std::span<const GradientSums::Counted> parts, int group, int sum);
  void all_reduce_norm(const Place& here, int sum, int group);
  void emit_update(const Place& here, int parameter, int factor_buffer);
  bool spreads_late() const { return plan_.overlap.broadcast == "next_forward"; }
  const ParameterShard& shard(int parameter) const { return held_.shards[static_cast<std::size_t>(parameter)]; }

  const Plan& plan_;
  const ModelGraph& graph_;
  int step_;
  const HeldParameters& held_;
  const ParameterGroups& groups_;
  ProgramBuilder& builder_;
  GatherEmission gathers_;
  GradientEmission gradients_;
  bool has_sums_;  ///< else another replica has those of all stages, and the norm of them
};

}  // namespace strata
