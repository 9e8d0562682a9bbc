#pragma once

/// @file
/// Operators cut into slices (OSDP, sec. 3.3): a linear of g slices becomes g linears, each with its columns of the
/// weight and of the input, whose results add up in one output. An embedding's slices each write their columns of the
/// output, so that a head tied to it can be cut.
///
/// It is a rewriting of the graph: a slice is an operator, and its weight a parameter, of their own, gathered, used and
/// released like any other; what stands behind knows slices by columns_of() and Parameter::slice_of alone. Planners and
/// lowering share it. The rewritten graph is not one that verify(ModelGraph) accepts: its slices write one tensor.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "ir/model/model_graph.hpp"
#include "ir/plan/plan.hpp"

namespace strata {

/// Columns of slice @p index when @p num_columns are cut into @p num_slices: as even as they can be, the longer ones
/// first.
ColumnBlock slice_columns(std::int64_t num_columns, int num_slices, int index);

/// The columns of its activation (a linear's input, an embedding's output) that @p op has as a slice; nullopt: it is
/// whole. Slices run in their order, backward from the last to the first.
std::optional<ColumnBlock> columns_of(const Operator& op);
inline bool is_first(const ColumnBlock& columns) { return columns.first == 0; }
inline bool is_last(const ColumnBlock& columns) { return columns.first + columns.size == columns.row; }

/// How a slice in mode @p word ("dp" | "sdp" | "zdp") is held over all ranks of @p mesh.
StateFactors slice_factors(const Mesh& mesh, std::string_view word);

/// By operator of a split graph: a slice's columns are held in the one mode that slice_state names, where it names one;
/// all that is not cut, as the bias, in the operator's state.
StateFactors state_of(const Mesh& mesh, const OperatorDecision& decision, const Parameter& parameter);
/// Whether anything of the operator is sharded.
bool is_sharded(const Mesh& mesh, const OperatorDecision& decision);

struct SplitModel {
  ModelGraph graph;
  std::vector<OperatorDecision> decisions;  ///< by operator of `graph`, see state_of(); none of them has slices
};

/// @param decisions of the plan, by operator of @p graph. The bias is with the first slice. Operators without
/// parameters have nothing to cut.
/// @throws Unsupported naming an operator with parameters that is neither a linear nor an embedding, or has fewer
/// columns than slices.
SplitModel split_operators(const Plan& plan, const ModelGraph& graph, std::span<const OperatorDecision> decisions);

}  // namespace strata
