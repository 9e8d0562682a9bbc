#pragma once

/// @file
/// The model cut into stages: consecutive operators, cut between blocks. What stands before the first block (embedding)
/// goes with the first stage, what stands behind a block (final norm, head, loss) with that block's.

#include <span>
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

/// `stages.count` stages, each of one block or more, whose largest cost is the least there is; among those cuts the
/// most even one (least sum of squares), among these the one with the shortest first stages. The cost of a stage by
/// `stages.cut_by`: forward FLOPs (backward ones are twice as many wherever they matter), operators, or elements of the
/// parameters that its operators use.
/// @throws Unsupported with the numbers if there are more stages than blocks.
std::vector<Stage> cut_into_stages(const ModelGraph& graph, const Stages& stages);

/// Tensors that operators before @p first_operator produce and others read, in ascending order: what a stage receives
/// that begins there. One that is read further on travels through every stage between.
std::vector<int> tensors_across(const ModelGraph& graph, int first_operator);

/// For each parameter the stages whose operators use it, in ascending order. A tied weight has several.
std::vector<std::vector<int>> stages_of_parameters(const ModelGraph& graph, std::span<const Stage> stages);

/// The operators of @p stage alone. Tensors, parameters and blocks keep their numbers; those of other stages have no
/// operators.
ModelGraph graph_of(const ModelGraph& graph, const Stage& stage);

}  // namespace strata
