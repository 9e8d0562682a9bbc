#pragma once

/// @file
/// Which axes of the mesh the degrees of a plan's layouts are, where tensors stand between operators, and into which
/// digits their dims are cut. Equal on all ranks.
///
/// A product whose sums are scattered leaves a tensor that is split and nothing else: its home is
/// (S0:p0, S1:p1·p2), or (S0:p0·p2, S1:p1) where that spares the next product an exchange (AutoDDL sec. 4.3); of a
/// product by panels what it computes, (S0:p0·p1, S1:p2). With sum = all_reduce the ranks of a sum all have it: (S0:p0,
/// S1:p1, B:p2), and repeat what stands between products (Megatron-LM, Oases). Other operators work at the home of what
/// they read, an addition at that of the input whose product comes latest. A norm between two products with sum =
/// all_reduce works where the second wants its samples: where that changes, the norm and the addition of the residual
/// then read one gathered tensor.

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "ir/model/model_graph.hpp"
#include "ir/plan/plan.hpp"
#include "partition/tensor_layout.hpp"

namespace strata {

/// linear or embedding: what has a layout of its own.
bool is_product(const Operator& op);
/// layer_norm or rms_norm.
bool is_norm(const Operator& op);
/// Convolutions and what else is data parallel.
bool works_on_images(const Operator& op);

struct LayoutsOfModel {
  AtomicAxes axes;
  std::vector<LayoutAxes> products;  ///< by operator; of products alone
  /// By operator, of algorithm summa alone: for every axis of p0 the axis into whose digit of the inputs it cuts the
  /// weight. One of p2 of the same size, where there is one: panels are then whole parts of inputs and of weights.
  /// Else, and of weights that several operators use, itself.
  std::vector<std::map<int, int>> weight_digits;
  std::vector<TensorLayout> homes;  ///< by tensor
  /// By tensor: the next product gathers it along samples, without an exchange.
  std::vector<bool> gathered_along_samples;
  /// By tensor: equal parts of a row that are split alike, q, k and v by heads or gate and up; 0: parts are unequal.
  std::vector<std::int64_t> sections;
  AxisOrder sample_order;
  std::vector<AxisOrder> feature_orders;     ///< by tensor; those that operators lead into each other share one
  std::vector<std::int64_t> granules;        ///< by tensor: features that are cut as one, those of a head; as above
  std::vector<AxisOrder> vocabulary_orders;  ///< by operator; of embeddings alone
};

/// Whether a product of @p decision has an input that stands at @p home, with samples split otherwise, exchanged before
/// it is gathered, as AutoDDL does: of tensors that are split and nothing else, where sums are scattered. Else what an
/// axis splits is gathered as it is.
bool is_exchanged_first(const AtomicAxes& axes, const TensorLayout& home, const OperatorDecision& decision);

/// @throws Unsupported naming the operator: a layout that it cannot have, tied weights whose uses hold different parts.
LayoutsOfModel layouts_of_model(const Plan& plan, const ModelGraph& graph, std::span<const OperatorDecision> decisions);

}  // namespace strata
