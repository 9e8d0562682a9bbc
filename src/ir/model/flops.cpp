/// @file
/// Arithmetic of an operator, forward and backward, counted one by one. Matrix products agree with the kernels of a
/// Program (ir/program/kernel_table.cpp); a bias rides on its product and softmax on attention's, and neither is
/// counted. Elementwise work is counted at the operations of its formula, a transcendental function as one: it matters
/// where a model is cut by FLOPs, never for a rate.

#include "base/error.hpp"
#include "ir/model/backward_reads.hpp"
#include "ir/model/model_graph.hpp"

namespace strata {
namespace {

std::int64_t pooled(const Attributes& a, const char* size) {
  return (a.integer(size) + 2 * a.integer("padding") - a.integer("kernel")) / a.integer("stride") + 1;
}

/// Of one matrix-like product: the forward pass, the gradient of the input, the gradient of the weight. For attention:
/// both products of the forward pass.
double product_flops(const ModelGraph& graph, const Operator& op) {
  const Attributes& a = op.attributes;
  const Tensor& x = graph.tensors[static_cast<std::size_t>(op.inputs[0])];
  switch (op.kind) {
    case OperatorKind::linear:
      return 2.0 * static_cast<double>(x.elements_per_sample()) * static_cast<double>(a.integer("out"));
    case OperatorKind::convolution:
      return 2.0 * static_cast<double>(pooled(a, "height") * pooled(a, "width")) *
             static_cast<double>(a.integer("out") * a.integer("in") * a.integer("kernel") * a.integer("kernel"));
    case OperatorKind::attention: {
      const auto sequence = static_cast<double>(x.shape[0]);
      return (a.integer("causal") != 0 ? 0.5 : 1.0) * 4.0 *
             static_cast<double>(a.integer("heads") * a.integer("head_dim")) * sequence * sequence;
    }
    case OperatorKind::embedding:
    case OperatorKind::layer_norm:
    case OperatorKind::rms_norm:
    case OperatorKind::rotary:
    case OperatorKind::gelu:
    case OperatorKind::gelu_erf:
    case OperatorKind::relu:
    case OperatorKind::swiglu:
    case OperatorKind::add:
    case OperatorKind::dropout:
    case OperatorKind::max_pool:
    case OperatorKind::average_pool:
    case OperatorKind::class_token:
    case OperatorKind::first_row:
    case OperatorKind::batch_norm:
    case OperatorKind::batch_norm_inference:
    case OperatorKind::cross_entropy:
    case OperatorKind::top_k:
    case OperatorKind::redistribute: break;
  }
  return 0.0;
}

}  // namespace

double forward_flops(const ModelGraph& graph, const Operator& op, std::int64_t num_samples) {
  const Attributes& a = op.attributes;
  const auto samples = static_cast<double>(num_samples);
  const auto x = static_cast<double>(graph.tensors[static_cast<std::size_t>(op.inputs[0])].elements_per_sample());
  const auto y = static_cast<double>(graph.tensors[static_cast<std::size_t>(op.outputs[0])].elements_per_sample());
  switch (op.kind) {
    case OperatorKind::linear:
    case OperatorKind::convolution:
    case OperatorKind::attention: return samples * product_flops(graph, op);
    case OperatorKind::embedding: return samples * (op.parameters.size() > 1 ? y : 0.0);
    case OperatorKind::layer_norm:
    case OperatorKind::batch_norm: return samples * 8.0 * x;            // mean 1, variance 3, normalise 2, affine 2
    case OperatorKind::batch_norm_inference: return samples * 4.0 * x;  // normalise 2, affine 2
    case OperatorKind::rms_norm: return samples * 4.0 * x;              // squares 2, scale 1, weight 1
    case OperatorKind::rotary:                                          // q and k: two products, one sum
      return samples * 3.0 * x * static_cast<double>(a.integer("heads") + a.integer("kv_heads")) /
             static_cast<double>(a.integer("heads") + 2 * a.integer("kv_heads"));
    case OperatorKind::gelu: return samples * 9.0 * x;      // x/2 (1 + tanh(c (x + a x³)))
    case OperatorKind::gelu_erf: return samples * 4.0 * x;  // x/2 (1 + erf(x c))
    case OperatorKind::swiglu: return samples * 6.0 * y;
    case OperatorKind::class_token: return samples * y;
    case OperatorKind::first_row: return 0.0;  // a copy
    case OperatorKind::relu:
    case OperatorKind::add:
    case OperatorKind::dropout:
    case OperatorKind::average_pool: return samples * x;
    case OperatorKind::max_pool:
      return samples * y * static_cast<double>(a.integer("kernel") * a.integer("kernel") - 1);
    case OperatorKind::cross_entropy: return samples * 4.0 * x;  // max, difference, exponential, sum
    case OperatorKind::top_k: return samples * 5.0 * x;          // the same, and a comparison
    case OperatorKind::redistribute: return 0.0;
  }
  throw InternalError("no such operator kind");
}

double backward_flops(const ModelGraph& graph, const Operator& op, std::int64_t num_samples) {
  const auto samples = static_cast<double>(num_samples);
  const auto x = static_cast<double>(graph.tensors[static_cast<std::size_t>(op.inputs[0])].elements_per_sample());
  const auto y = static_cast<double>(graph.tensors[static_cast<std::size_t>(op.outputs[0])].elements_per_sample());
  const auto input_gradient = [&]() -> bool {
    return tensors_with_gradient(graph)[static_cast<std::size_t>(op.inputs[0])];
  };
  switch (op.kind) {
    case OperatorKind::linear:
    case OperatorKind::convolution: return samples * product_flops(graph, op) * (input_gradient() ? 2.0 : 1.0);
    case OperatorKind::attention: return samples * 2.0 * product_flops(graph, op);  // dQ, dK, dV, dP; no recomputation
    case OperatorKind::embedding: return samples * y * static_cast<double>(op.parameters.size());
    case OperatorKind::layer_norm:
    case OperatorKind::batch_norm: return samples * 13.0 * x;
    case OperatorKind::rms_norm: return samples * 9.0 * x;
    case OperatorKind::gelu: return samples * 18.0 * x;
    case OperatorKind::gelu_erf: return samples * 11.0 * x;  // Φ 4, the density 4, their sum 2, the product with dy 1
    case OperatorKind::swiglu: return samples * 12.0 * y;
    // Both parameters are sums over samples; what an image's rows and the first row are given is a copy.
    case OperatorKind::class_token: return samples * (y + y - x);
    case OperatorKind::first_row: return 0.0;
    case OperatorKind::cross_entropy: return samples * 2.0 * x;
    case OperatorKind::rotary: return forward_flops(graph, op, num_samples);
    case OperatorKind::relu:
    case OperatorKind::dropout: return input_gradient() ? samples * x : 0.0;
    case OperatorKind::max_pool:
    case OperatorKind::average_pool: return input_gradient() ? samples * y : 0.0;
    case OperatorKind::batch_norm_inference:
    case OperatorKind::top_k:
    case OperatorKind::redistribute: return 0.0;
    case OperatorKind::add: return 0.0;  // both inputs take the gradient as it is
  }
  throw InternalError("no such operator kind");
}

}  // namespace strata
