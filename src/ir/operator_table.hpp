#pragma once

/// @file
/// One row an operator kind: its name, how many tensors and parameters it takes, and the attributes it must have. The
/// text form and verify read this table.

#include <array>
#include <cstddef>
#include <string_view>

#include "ir/model_graph.hpp"

namespace strata::operator_table {

struct Row {
  OperatorKind kind;
  std::string_view name;
  std::size_t num_inputs;
  std::size_t num_outputs;
  std::size_t min_parameters;
  std::size_t max_parameters;
  std::string_view integers;  ///< attribute keys, separated by spaces: exactly these
  std::string_view reals;
};

constexpr std::array rows = {
    Row{OperatorKind::embedding, "embedding", 1, 1, 1, 2, "vocabulary width", ""},
    Row{OperatorKind::linear, "linear", 1, 1, 1, 2, "in out", ""},
    Row{OperatorKind::layer_norm, "layer_norm", 1, 2, 2, 2, "width", "epsilon"},
    Row{OperatorKind::rms_norm, "rms_norm", 1, 2, 1, 1, "width", "epsilon"},
    Row{OperatorKind::rotary, "rotary", 1, 1, 0, 0, "heads kv_heads head_dim", "theta"},
    Row{OperatorKind::attention, "attention", 1, 2, 0, 0, "heads kv_heads head_dim causal", "dropout"},
    Row{OperatorKind::gelu, "gelu", 1, 1, 0, 0, "", ""},
    Row{OperatorKind::relu, "relu", 1, 1, 0, 0, "", ""},
    Row{OperatorKind::swiglu, "swiglu", 1, 1, 0, 0, "width", ""},
    Row{OperatorKind::add, "add", 2, 1, 0, 0, "", ""},
    Row{OperatorKind::dropout, "dropout", 1, 1, 0, 0, "", "probability"},
    Row{OperatorKind::convolution, "convolution", 1, 1, 1, 2, "in out kernel stride padding height width", ""},
    Row{OperatorKind::max_pool, "max_pool", 1, 2, 0, 0, "channels kernel stride padding height width", ""},
    Row{OperatorKind::average_pool, "average_pool", 1, 1, 0, 0, "channels height width", ""},
    Row{OperatorKind::batch_norm, "batch_norm", 1, 2, 2, 2, "channels", "epsilon momentum"},
    Row{OperatorKind::cross_entropy, "cross_entropy", 2, 1, 0, 0, "classes", ""},
    Row{OperatorKind::redistribute, "redistribute", 1, 1, 0, 0, "step", ""},
};

/// The table stands in the order of the enumeration.
constexpr const Row& row(OperatorKind kind) { return rows.at(static_cast<std::size_t>(kind)); }
constexpr bool in_order() {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].kind != static_cast<OperatorKind>(i)) return false;
  }
  return true;
}
static_assert(in_order());

}  // namespace strata::operator_table
