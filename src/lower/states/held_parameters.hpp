#pragma once

/// @file
/// What one rank holds of the model's parameters, and with whom it shares it: made once, for all training steps of a
/// body.

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "ir/model/model_graph.hpp"
#include "ir/order/step_order.hpp"
#include "ir/plan/plan.hpp"
#include "lower/states/parameter_buffers.hpp"
#include "lower/states/shard_groups.hpp"
#include "lower/states/visiting_parameters.hpp"
#include "lower/step/builder.hpp"
#include "partition/replica_ring.hpp"
#include "partition/shards.hpp"

namespace strata {

struct HeldParameters {
  /// @param order of the rank, which holds the parameters that its items read.  @param data see ShardGroups.
  /// @param ring null: there is none.
  HeldParameters(const Plan& plan, const ModelGraph& graph, const StepOrder& order,
                 std::vector<ParameterShard> of_parameters, const ReplicaGrids& grids, std::span<const int> data,
                 const ReplicaRing* ring, ProgramBuilder& builder)
      : shards(std::move(of_parameters)),
        groups(plan, shards, grids, data, builder),
        buffers(plan, graph,
                ring == nullptr ? versions_of_parameters(order, graph) : versions_on_ring(order, graph, *ring),
                updated_parameters(order, graph, ring), shards, builder) {}
  HeldParameters(const HeldParameters&) = delete;
  HeldParameters& operator=(const HeldParameters&) = delete;

  std::vector<ParameterShard> shards;  ///< by parameter of the graph
  ShardGroups groups;
  ParameterBuffers buffers;
  std::optional<VisitingParameters> visiting{};  ///< of stages that other ranks own, where parameters walk
};

}  // namespace strata
