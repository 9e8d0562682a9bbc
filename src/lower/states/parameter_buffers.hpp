#pragma once

/// @file
/// What one rank keeps of parameters and optimizer states from step to step: buffers that last, and their initial
/// values. Of every parameter that its operators read it holds the p shard in the compute dtype and the os shard of
/// master values and moments (shards.hpp).
///
/// Where items of its order read the parameters of an earlier training step, θ_{t-1} instead of θ_t, there is a buffer
/// for each version: θ_t stands in buffer t modulo their number, whatever runs between. The update of training step t
/// so makes θ_{t+1} in the buffer of the oldest version. States of the optimizer have one version.

#include <span>
#include <vector>

#include "ir/model/model_graph.hpp"
#include "ir/order/step_order.hpp"
#include "ir/plan/plan.hpp"
#include "lower/step/builder.hpp"
#include "partition/replica_ring.hpp"
#include "partition/shards.hpp"

namespace strata {

class ParameterBuffers {
 public:
  struct Owned {
    std::vector<int> weights;  ///< by version: p shard, compute dtype
    int master = -1;  ///< os shard, f32; -1 where compute is f32 (a part of the weights' buffers) or others have it
    std::vector<int> states;  ///< os shard, f32: momentum, or first and second moment
    bool held() const { return !weights.empty(); }
  };

  /// @param num_versions by parameter; 0: other ranks alone hold it.  @param updates by parameter; false: this rank
  /// reads what others update.  @param shards by parameter, which outlive this.
  ParameterBuffers(const Plan& plan, const ModelGraph& graph, std::span<const int> num_versions,
                   const std::vector<bool>& updates, std::span<const ParameterShard> shards, ProgramBuilder& builder);

  /// Prologue: initial values by global index, zero states.
  void initialize(const Place& here) const;

  /// Of a parameter that other ranks alone hold everything is empty.
  const Owned& of(int parameter) const { return owned_[static_cast<std::size_t>(parameter)]; }
  /// The buffer of θ_t of training step t = @p step, relative to the first of a repetition; -1: not held.
  int weight(int parameter, int step) const;
  /// The part of @p parameter that is updated, of θ_t.
  Operand master(int parameter, int step) const;
  /// Weights are in another dtype than the masters that are updated.
  bool mixed() const { return mixed_; }

 private:
  const ModelGraph& graph_;
  std::span<const ParameterShard> shards_;
  ProgramBuilder& builder_;
  bool mixed_;
  std::vector<Owned> owned_;  ///< by parameter of the graph
};

/// By parameter of @p graph: how many versions a rank keeps that has this order, one more than the oldest that an item
/// reads is old; 0: no item reads it.
std::vector<int> versions_of_parameters(const StepOrder& order, const ModelGraph& graph);
/// The same of a replica, to which parameters come as @p ring says.
std::vector<int> versions_on_ring(const StepOrder& order, const ModelGraph& graph, const ReplicaRing& ring);
/// By parameter: it is this rank that updates it.  @param ring null: a rank updates what it reads.
std::vector<bool> updated_parameters(const StepOrder& order, const ModelGraph& graph, const ReplicaRing* ring);

}  // namespace strata
