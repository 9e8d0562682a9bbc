#pragma once

/// @file
/// What is trained: parameters, activations and operators in forward order. Plain data; no rank, no layout, no batch
/// size. Everything a strategy distributes is named here once, so that a tied weight is decided once.
///
/// Names are paths with block numbers in brackets: `block[3].mlp.fc1` (operator), `block[3].mlp.fc1.weight`
/// (parameter).

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.hpp"
#include "ir/model/attributes.hpp"
#include "ir/model/strided_block.hpp"

namespace strata {

/// What an operator computes. Attributes in parentheses; x, y: inputs and outputs as tensors of the graph.
/// Sizes are per sample: a tensor [s, h] stands for [samples, s, h].
enum class OperatorKind : std::uint8_t {
  embedding,    ///< tokens [s] -> [s, width]; parameters: table [vocabulary, width], optional positions [s_max, width]
                ///< (vocabulary, width)
  linear,       ///< [..., in] -> [..., out], an image [h, w, c] of in elements -> [out]; parameters: weight [out, in],
                ///< optional bias [out] (in, out)
  layer_norm,   ///< [..., width] -> same, statistics [..., 2] f32; parameters: weight, bias (width, epsilon)
  rms_norm,     ///< [..., width] -> same, statistics [...] f32; parameters: weight (width, epsilon)
  rotary,       ///< [s, (heads + 2 kv_heads) head_dim] -> same; rotates q and k, half-split (heads, kv_heads, head_dim,
                ///< theta)
  attention,    ///< fused qkv [s, (heads + 2 kv_heads) head_dim] -> [s, heads head_dim], statistics [heads, s] f32
                ///< (log-sum-exp) (heads, kv_heads, head_dim, causal, dropout)
  gelu,         ///< tanh form
  gelu_erf,     ///< x Φ(x)
  relu,         ///<
  swiglu,       ///< [..., 2 width], gate first -> [..., width]: silu(gate) * up (width)
  add,          ///< two equal shapes -> same
  dropout,      ///< (probability)
  convolution,  ///< [h, w, in] -> [h', w', out] (channels last); parameters: weight [out, kernel, kernel, in], optional
                ///< bias [out] (in, out, kernel, stride, padding, height, width: of the input)
  max_pool,     ///< [h, w, c] -> [h', w', c], indices u8 (kernel, stride, padding, height, width, channels)
  average_pool,  ///< [h, w, c] -> [c], global (height, width, channels)
  class_token,  ///< [h, w, c] -> [h w + 1, c]: a learned row in front of those of an image, and learned positions added
                ///< to all; parameters: token [c], positions [h w + 1, c] (height, width, channels)
  first_row,    ///< [s, width] -> [width] (width)
  batch_norm,   ///< [h, w, c] -> same, statistics [2 c] f32 a micro-batch; parameters: weight, bias (channels, epsilon,
                ///< momentum)
  batch_norm_inference,  ///< [h, w, c] -> same, of evaluation: normalised by what training has kept; parameters:
                         ///< weight, bias, running mean, running variance (channels, epsilon)
  cross_entropy,  ///< logits [..., classes], targets [...] -> loss [...] f32; backward from the saved logits (classes)
  top_k,  ///< of evaluation: logits [..., classes], targets [...] -> loss, top-1, top-5, each [...] f32 (classes)
  redistribute,  ///< in no model: what lowering puts between operators with different tensor layouts (step)
};

/// What a tensor of the graph holds and, with it, its element type.
enum class TensorRole : std::uint8_t {
  activation,  ///< the plan's compute dtype
  statistic,   ///< f32: saved for the backward pass by the operator that writes it
  indices,     ///< u8: arg-max positions of pooling
  tokens,      ///< i32 input
  targets,     ///< i32 input
  image,       ///< input, compute dtype, channels last
  loss,        ///< f32: one value a position
};

struct Tensor {
  std::string name;
  std::vector<std::int64_t> shape;  ///< of one sample; {} is one element a sample
  TensorRole role = TensorRole::activation;
  bool operator==(const Tensor&) const = default;
  std::int64_t elements_per_sample() const;
};

/// Three dims: [h, w, c]. A dense layer flattens it, whatever its size.
bool is_image(const Tensor& tensor);

struct Initializer {
  enum class Kind : std::uint8_t { constant, normal, uniform };
  Kind kind = Kind::constant;
  double a = 0.0;  ///< constant: the value; normal: the mean; uniform: lower end
  double b = 0.0;  ///< normal: the standard deviation; uniform: upper end
  bool operator==(const Initializer&) const = default;
};

struct Parameter {
  std::string name;
  std::vector<std::int64_t> shape;
  Initializer initializer;
  bool weight_decay = false;  ///< matrices and kernels decay; biases, norms and one-dimensional tensors do not
  std::string slice_of{};     ///< the parameter of which this one has `block`; empty: it is none's slice
  StridedBlock block{};       ///< of the whole, of which this is held
  bool operator==(const Parameter&) const = default;
  std::int64_t num_elements() const;
  /// What initial values, checkpoints and checksums are named after: the parameter, however it is held.
  const std::string& whole() const { return slice_of.empty() ? name : slice_of; }
};

struct Operator {
  std::string name;
  OperatorKind kind = OperatorKind::linear;
  std::vector<int> inputs;      ///< tensor ids
  std::vector<int> outputs;     ///< tensor ids; statistics and indices follow the value
  std::vector<int> parameters;  ///< parameter ids; a tied weight appears in several operators
  Attributes attributes;
  int block = -1;  ///< index into ModelGraph::blocks, -1: outside of every block
  bool operator==(const Operator&) const = default;
};

/// A run of consecutive operators that recomputation, stages and planners treat as one. Blocks of equal `shape_class`
/// have the same operators with the same attributes: identical cost, interchangeable for a search.
struct Block {
  std::string name;  ///< `block[3]`
  int first_operator = 0;
  int num_operators = 0;
  int shape_class = 0;
  bool operator==(const Block&) const = default;
};

struct ModelGraph {
  std::string name;
  std::vector<Tensor> tensors;
  std::vector<Parameter> parameters;
  std::vector<Operator> operators;  ///< forward (topological) order
  std::vector<Block> blocks;
  std::int64_t positions_per_sample = 1;  ///< tokens of a sequence, 1 for an image: what throughput counts
  bool operator==(const ModelGraph&) const = default;

  std::int64_t num_parameters() const;  ///< elements, tied weights once
};

std::string_view to_string(OperatorKind kind);
std::string_view to_string(TensorRole role);
/// @throws UserError listing the accepted names.
OperatorKind parse_operator_kind(std::string_view text);
TensorRole parse_tensor_role(std::string_view text);

/// Which forward tensors the backward pass of @p op reads (tensor ids): the memory of an activation follows from this.
std::vector<int> saved_for_backward(const Operator& op);

/// Of a tensor where activations are computed in @p compute.
DType dtype_of(TensorRole role, DType compute);

/// Floating-point operations (multiply and add counted as two) of @p op on @p num_samples samples. Causal attention
/// counts the half that is computed. Backward excludes recomputation. Elementwise work is counted at its arithmetic.
double forward_flops(const ModelGraph& graph, const Operator& op, std::int64_t num_samples);
double backward_flops(const ModelGraph& graph, const Operator& op, std::int64_t num_samples);

/// @throws InternalError naming the operator and the broken rule: ids in range, topological order, one producer a
/// tensor, shapes that
///         agree with the attributes and parameters, unique names, blocks that tile consecutive operators, equal shape
///         classes equal.
void verify(const ModelGraph& graph);

/// Stable text, one line a tensor, parameter, operator and block. parse_model_graph(to_text(g)) == g.
std::string to_text(const ModelGraph& graph);
/// @throws UserError with line and what is accepted.
ModelGraph parse_model_graph(std::string_view text);

}  // namespace strata
