#pragma once

/// @file
/// Who holds which elements of a parameter where its states are sharded (AMSP, ZeRO). Pure arithmetic over the grid of
/// R ranks a node × N nodes.
///
/// A factor a×b tiles the grid with cells of a neighbouring ranks in a node × b neighbouring nodes, neighbours as
/// mesh.node_order puts them (AMSP, fig. 10: under one leaf switch); a cell holds one copy, each of its ranks one
/// shard. Factors are nested: the optimizer's shard is a part of the parameter's. A tensor of n elements is cut as
/// collectives cut it (chunk_of); what does not divide leaves the last ranks short or empty.

#include <cstdint>
#include <span>
#include <vector>

#include "ir/model/model_graph.hpp"
#include "ir/plan/plan.hpp"

namespace strata {

/// Of the ranks in the @p outer cell of @p rank those that hold the same @p inner shard, in the order of their shards.
/// With inner 1x1: the whole cell. @p inner divides @p outer in both dimensions.
std::vector<int> ranks_between(const Mesh& mesh, const Factor& outer, const Factor& inner, int rank);
/// Position of @p rank in ranks_between().
int index_between(const Mesh& mesh, const Factor& outer, const Factor& inner, int rank);
/// By world rank: its place on the grid, numbered node by node as mesh.node_order puts them. On the same mesh without
/// node_order, places are what ranks are on @p mesh; asked about all ranks, that is quicker than to look each one up.
std::vector<int> places_on_grid(const Mesh& mesh);
/// All ranks: R×N.
Factor whole_grid(const Mesh& mesh);
/// The ranks over which states may be sharded, those of a data group: a cell of the grid. All of it without stages;
/// with layouts those of a stage, of which a layout leaves some.
/// @throws Unsupported with the numbers where they are no neighbours, or fill nodes in part.
Factor data_grid(const Mesh& mesh);
/// True if @p inner divides @p outer in both dimensions.
bool divides(const Factor& inner, const Factor& outer);
/// What an element's update reads and writes beside the weight that kernels read: f32 masters, where that is of another
/// dtype, and moments.
std::int64_t optimizer_bytes_per_element(const Plan& plan);
/// Owner of each of @p sizes, dealt the largest first, each to the owner with the least so far (AMSP sec. IV-C2).
std::vector<int> deal_largest_first(std::span<const std::int64_t> sizes, int num_owners);

struct Piece {
  std::int64_t begin = 0;
  std::int64_t size = 0;
  bool operator==(const Piece&) const = default;
};

/// What one rank holds of one parameter.
struct ParameterShard {
  StateFactors factors;
  Piece held;     ///< of the flattened parameter: the p shard
  Piece updated;  ///< of `held`: the optimizer's shard, whose update is this rank's
  int owner = 0;  ///< inter-tensor: who updates all of `held`, by index among those that hold it in an os cell
  bool is_sharded() const { return factors.os.total() > 1; }
};

/// Ranks that hold copies of the same parameters, or shards of them: a grid of its own, which factors tile.
struct ReplicaGrid {
  Mesh mesh;               ///< its nodes and ranks a node
  std::vector<int> ranks;  ///< of the job, by place on this grid; empty: places are ranks
  int place = 0;           ///< of this rank
  /// Those that share, as factors tile them: all of a grid of its own, of the job's the data ranks (data_grid()).
  Factor size() const { return ranks.empty() ? data_grid(mesh) : whole_grid(mesh); }
  /// ranks_between() as ranks of the job, and index_between().
  std::vector<int> between(const Factor& outer, const Factor& inner) const;
  int index(const Factor& outer, const Factor& inner) const { return index_between(mesh, outer, inner, place); }
};

/// Which grid each parameter is held on.
struct ReplicaGrids {
  std::vector<ReplicaGrid> grids;
  std::vector<int> of_parameter;  ///< empty: all are on the first
  int index_of(std::size_t parameter) const { return of_parameter.empty() ? 0 : of_parameter[parameter]; }
  const ReplicaGrid& of(std::size_t parameter) const { return grids[static_cast<std::size_t>(index_of(parameter))]; }
};
/// One grid of all ranks.
ReplicaGrids whole_grids(const Mesh& mesh, int rank);

/// What the rank at @p place of the grid @p mesh holds of a tensor of @p num_elements, flattened. Nothing else of the
/// tensor matters, so that of many of one size one needs to be looked at. @param owner inter-tensor: see
/// ParameterShard.
ParameterShard shard_of(const Plan& plan, std::int64_t num_elements, const StateFactors& factors, int owner,
                        const Mesh& mesh, int place);
/// By parameter of the graph. Optimizer states are dealt inter-tensor (whole p shards to ranks, the largest first, each
/// to the rank with the fewest elements so far; AMSP sec. IV-C2) or intra-tensor (even chunks), as the plan says.
/// @throws Unsupported naming the operator where factors are not nested, or gradients are sharded as neither parameters
/// nor optimizer states are.
std::vector<ParameterShard> shards_of(const Plan& plan, const ModelGraph& graph,
                                      std::span<const OperatorDecision> decisions, const ReplicaGrids& grids);
/// The same where all ranks share all parameters.
std::vector<ParameterShard> shards_of(const Plan& plan, const ModelGraph& graph,
                                      std::span<const OperatorDecision> decisions, int rank);

}  // namespace strata
