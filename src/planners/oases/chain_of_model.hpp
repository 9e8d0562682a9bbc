#pragma once

/// @file
/// A model as a chain for Oases' planner: which operators a node has, and what a tensor degree costs there. Nodes end
/// where megatron's layouts sum: behind attention, behind the MLP, behind the table of words; behind the last of them
/// stands the head. Whatever family the model is of.

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "planners/layouts/layout_planning.hpp"
#include "planners/oases/chain.hpp"

namespace strata {

/// Nodes of a model.
struct ChainNodes {
  std::vector<std::string> names{};  ///< of the operator that ends it
  std::vector<int> block{};          ///< of that operator; -1: none
  std::vector<int> of_operator{};    ///< by operator of the graph
  /// In the backward: what stands before the first product of a node comes behind the sum of that product's input
  /// gradient, so it is computed with the node before.
  std::vector<int> of_operator_backward{};
  std::vector<int> of_layer{};       ///< by layer of the chain of layers
  std::vector<LayerLink> behind{};   ///< by node but the last: what flows to the next, its elements a sample
  bool ends_share_a_weight = false;  ///< the head is the table of words
  std::size_t size() const { return names.size(); }
};
/// @throws Unsupported where nothing is summed: no product by rows.
ChainNodes chain_nodes(const ModelGraph& graph, const LayerChain& layers, const Factor& grid);

/// What a node may be.
struct NodeChoice {
  Factor tensor{};     ///< ranks over which its weights are cut
  bool keeps = false;  ///< what its backward reads: nothing of it is computed again
};

/// What the nodes' choices say of a model, or of a part of it.
struct NodePlan {
  std::vector<Layout> layouts{};  ///< by layer
  std::vector<bool> keeps{};      ///< by operator
};
/// @param choices by node, of @p options.
NodePlan node_plan(const LayoutPlanning& planning, const ChainNodes& nodes, std::span<const NodeChoice> options,
                   std::span<const int> choices);

/// What a sum takes, and from where one knows it; see the option `cost`.
enum class ChainCosts : std::uint8_t { links, authors };

/// A plan for a part of the model, everything else as the whole one's.
using PlanOfPart = std::function<Plan(const PlanRequest& part, const LayoutPlanning& planning, const NodePlan& nodes,
                                      int sub_batches)>;

/// The chain of @p nodes with the choices @p options. Compute is priced by the instructions of Programs of few blocks,
/// one or two a degree, which Evaluate::price() makes; sums and gathers by what the option `cost` names: the links'
/// costs, or as the authors' program does (profiled over all ranks, whatever the degree; an edge's gathers take their
/// sums at the smaller degree times the ratio of degrees; 20 bytes a parameter and 12 a saved element). Bytes otherwise
/// are what a block more adds to a Program, shared by nodes as what lasts of them is.
/// @param options their degrees divide the grid and what they cut; those that keep nothing first, degrees ascending.
/// @throws Unsupported where lowering refuses.
Chain chain_of_model(const PlanRequest& request, const LayoutPlanning& planning, const ChainNodes& nodes,
                     std::span<const NodeChoice> options, int sub_batches, ChainCosts costs, const PlanOfPart& plan_of);

}  // namespace strata
