#pragma once

/// @file
/// The model cut into stages: consecutive operators, cut between blocks or at any operator. Between blocks, what stands
/// before the first block (embedding) goes with the first stage, what stands behind a block (final norm, head, loss)
/// with that block's.

#include <span>
#include <string_view>
#include <vector>

#include "ir/model/model_graph.hpp"
#include "ir/plan/plan.hpp"

namespace strata {

/// Operators [first_operator, first_operator + num_operators) of the graph.
struct Stage {
  int first_operator = 0;
  int num_operators = 0;
  bool operator==(const Stage&) const = default;
  int end() const { return first_operator + num_operators; }
};

std::span<const Operator> operators_of(const ModelGraph& graph, const Stage& stage);

/// Operators that a stage may begin with, ascending: the first of all, and of each block but the first ("block"); or
/// every one to which, or behind which, something comes from before it that a gradient goes back to ("operator"), but
/// no slice of an operator behind its first.
std::vector<int> cut_points(const ModelGraph& graph, std::string_view cut_at);

/// `stages.count` stages that begin with `stages.begins`; where that is empty, at those of cut_points() with which the
/// largest cost is the least there is; among those cuts the most even one (least sum of squares), among these the one
/// with the shortest first stages. The cost of a stage by `stages.cut_by`: forward FLOPs (backward ones are twice as
/// many wherever they matter); these with a bias counted as the square root of its linear's (`flops_paper`: Fournier et
/// al., sec. 5.1, who may part the two, which are one operator here); operators; or elements of the parameters that
/// its operators use.
/// @throws Unsupported with the numbers if there are more stages than cut points; naming what no stage can begin with.
std::vector<Stage> cut_into_stages(const ModelGraph& graph, const Stages& stages);

/// Tensors that operators before @p first_operator produce and others read, in ascending order: what a stage receives
/// that begins there. One that is read further on travels through every stage between.
std::vector<int> tensors_across(const ModelGraph& graph, int first_operator);

/// For each parameter the stages whose operators use it, in ascending order. A tied weight has several.
std::vector<std::vector<int>> stages_of_parameters(const ModelGraph& graph, std::span<const Stage> stages);

/// The operators of @p stages alone, which rise. Tensors, parameters and blocks keep their numbers; those of other
/// stages have no operators.
ModelGraph graph_of(const ModelGraph& graph, std::span<const Stage> stages);

}  // namespace strata
