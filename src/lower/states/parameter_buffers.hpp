#pragma once

/// @file
/// What one rank keeps of parameters and optimizer states from step to step: buffers that last, and their initial
/// values. Of every parameter that its operators read it holds the p shard in the compute dtype and the os shard of
/// master values and moments (shards.hpp).

#include <span>
#include <vector>

#include "ir/model/model_graph.hpp"
#include "ir/plan/plan.hpp"
#include "lower/step/builder.hpp"
#include "partition/shards.hpp"

namespace strata {

class ParameterBuffers {
 public:
  struct Owned {
    int weight = -1;          ///< p shard, compute dtype
    Operand master;           ///< os shard, f32; a part of the weight's buffer where compute is f32
    std::vector<int> states;  ///< os shard, f32: momentum, or first and second moment
    bool held() const { return weight >= 0; }
  };

  /// @param operators of this rank.  @param shards by parameter.
  ParameterBuffers(const Plan& plan, const ModelGraph& graph, std::span<const Operator> operators,
                   std::span<const ParameterShard> shards, ProgramBuilder& builder);

  /// Prologue: initial values by global index, zero states.
  void initialize() const;

  /// Of a parameter that other ranks alone hold everything is empty.
  const Owned& of(int parameter) const { return owned_[static_cast<std::size_t>(parameter)]; }
  /// By parameter: the buffer of its weight, -1: not held.
  std::vector<int> weights() const;
  /// Weights are in another dtype than the masters that are updated.
  bool mixed() const { return mixed_; }

 private:
  const ModelGraph& graph_;
  ProgramBuilder& builder_;
  bool mixed_;
  std::vector<Owned> owned_;  ///< by parameter of the graph
};

}  // namespace strata
