#pragma once

/// @file
/// One row an operator kind: its name, how many tensors and parameters it takes, the attributes it must have, and the
/// kernels that it becomes. The text form, verify, planners and the lowering read this table.

#include <array>
#include <cstddef>
#include <string_view>

#include "ir/model/model_graph.hpp"
#include "ir/program/program.hpp"

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
  Kernel forward;
  Kernel backward;         ///< the gradient of the input, and of parameters where they have no kernel of their own
  Kernel backward_weight;  ///< none: `backward` has it, or there are no parameters
};

constexpr std::array rows = {
    Row{OperatorKind::embedding, "embedding", 1, 1, 1, 2, "vocabulary width", "", Kernel::embedding_forward,
        Kernel::embedding_backward, Kernel::none},
    Row{OperatorKind::linear, "linear", 1, 1, 1, 2, "in out", "", Kernel::linear_forward, Kernel::linear_backward_input,
        Kernel::linear_backward_weight},
    Row{OperatorKind::layer_norm, "layer_norm", 1, 2, 2, 2, "width", "epsilon", Kernel::layer_norm_forward,
        Kernel::layer_norm_backward, Kernel::none},
    Row{OperatorKind::rms_norm, "rms_norm", 1, 2, 1, 1, "width", "epsilon", Kernel::rms_norm_forward,
        Kernel::rms_norm_backward, Kernel::none},
    Row{OperatorKind::rotary, "rotary", 1, 1, 0, 0, "heads kv_heads head_dim", "theta", Kernel::rotary_forward,
        Kernel::rotary_backward, Kernel::none},
    Row{OperatorKind::attention, "attention", 1, 2, 0, 0, "heads kv_heads head_dim causal", "dropout",
        Kernel::attention_forward, Kernel::attention_backward, Kernel::none},
    Row{OperatorKind::gelu, "gelu", 1, 1, 0, 0, "", "", Kernel::gelu_forward, Kernel::gelu_backward, Kernel::none},
    Row{OperatorKind::gelu_erf, "gelu_erf", 1, 1, 0, 0, "", "", Kernel::gelu_erf_forward, Kernel::gelu_erf_backward,
        Kernel::none},
    Row{OperatorKind::relu, "relu", 1, 1, 0, 0, "", "", Kernel::relu_forward, Kernel::relu_backward, Kernel::none},
    Row{OperatorKind::swiglu, "swiglu", 1, 1, 0, 0, "width", "", Kernel::swiglu_forward, Kernel::swiglu_backward,
        Kernel::none},
    Row{OperatorKind::add, "add", 2, 1, 0, 0, "", "", Kernel::add, Kernel::none, Kernel::none},
    Row{OperatorKind::dropout, "dropout", 1, 1, 0, 0, "", "probability", Kernel::dropout_forward,
        Kernel::dropout_backward, Kernel::none},
    Row{OperatorKind::convolution, "convolution", 1, 1, 1, 2, "in out kernel stride padding height width", "",
        Kernel::convolution_forward, Kernel::convolution_backward_input, Kernel::convolution_backward_weight},
    Row{OperatorKind::max_pool, "max_pool", 1, 2, 0, 0, "channels kernel stride padding height width", "",
        Kernel::max_pool_forward, Kernel::max_pool_backward, Kernel::none},
    Row{OperatorKind::average_pool, "average_pool", 1, 1, 0, 0, "channels height width", "",
        Kernel::average_pool_forward, Kernel::average_pool_backward, Kernel::none},
    Row{OperatorKind::class_token, "class_token", 1, 1, 2, 2, "channels height width", "", Kernel::class_token_forward,
        Kernel::class_token_backward, Kernel::none},
    Row{OperatorKind::first_row, "first_row", 1, 1, 0, 0, "width", "", Kernel::first_row_forward,
        Kernel::first_row_backward, Kernel::none},
    Row{OperatorKind::batch_norm, "batch_norm", 1, 2, 2, 2, "channels", "epsilon momentum", Kernel::batch_norm_forward,
        Kernel::batch_norm_backward, Kernel::none},
    Row{OperatorKind::batch_norm_inference, "batch_norm_inference", 1, 1, 4, 4, "channels", "epsilon",
        Kernel::batch_norm_inference, Kernel::none, Kernel::none},
    Row{OperatorKind::cross_entropy, "cross_entropy", 2, 1, 0, 0, "classes", "", Kernel::cross_entropy, Kernel::none,
        Kernel::none},
    Row{OperatorKind::top_k, "top_k", 2, 3, 0, 0, "classes", "", Kernel::top_k, Kernel::none, Kernel::none},
    Row{OperatorKind::redistribute, "redistribute", 1, 1, 0, 0, "step", "", Kernel::none, Kernel::none, Kernel::none},
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
