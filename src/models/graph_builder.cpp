/// @file
/// Shapes are computed here from the input's; verify computes them once more, from the attributes.

#include "models/graph_builder.hpp"

#include <fmt/core.h>

#include <utility>

#include "base/as_index.hpp"
#include "base/error.hpp"
#include "ir/model/block_shape.hpp"

namespace strata {
namespace {

using Shape = std::vector<std::int64_t>;

Shape with_last(Shape shape, std::int64_t width) {
  shape.back() = width;
  return shape;
}

/// Places of a window along @p size elements.
std::int64_t slid(std::int64_t size, const GraphBuilder::Pool& window) {
  return (size + 2 * window.padding - window.kernel) / window.stride + 1;
}

}  // namespace

Initializer constant(double value) { return {Initializer::Kind::constant, value, 0.0}; }
Initializer normal(double standard_deviation) { return {Initializer::Kind::normal, 0.0, standard_deviation}; }

GraphBuilder::GraphBuilder(std::string model_name) { graph_.name = std::move(model_name); }

int GraphBuilder::input(std::string name, Shape shape, TensorRole role) {
  return add_tensor(std::move(name), std::move(shape), role);
}

void GraphBuilder::begin_block(std::string name) {
  STRATA_INVARIANT(!in_block_, "blocks do not nest");
  graph_.blocks.push_back({.name = std::move(name), .first_operator = static_cast<int>(graph_.operators.size())});
  in_block_ = true;
}

void GraphBuilder::end_block() {
  STRATA_INVARIANT(in_block_, "no block has begun");
  Block& block = graph_.blocks.back();
  block.num_operators = static_cast<int>(graph_.operators.size()) - block.first_operator;
  in_block_ = false;
}

int GraphBuilder::embedding(std::string_view name, int tokens, std::int64_t vocabulary, std::int64_t width,
                            std::int64_t positions, const Initializer& initializer) {
  std::vector<int> parameters = {add_parameter(full(name), "table", {vocabulary, width}, initializer)};
  if (positions > 0) {
    parameters.push_back(add_parameter(full(name), "positions", {positions, width}, initializer));
  }
  return add_operator(name, OperatorKind::embedding, {tokens}, {shape(tokens)[0], width}, std::move(parameters),
                      {{"vocabulary", vocabulary}, {"width", width}});
}

int GraphBuilder::linear(std::string_view name, int x, const Linear& linear) {
  std::vector<int> parameters = {add_parameter(full(name), "weight", {linear.out, linear.in}, linear.weight)};
  if (linear.bias) {
    parameters.push_back(add_parameter(full(name), "bias", {linear.out}, constant(0.0)));
  }
  // An image that enters a dense layer is flattened.
  Shape y = is_image(graph_.tensors[as_index(x)]) ? Shape{linear.out} : with_last(shape(x), linear.out);
  return add_operator(name, OperatorKind::linear, {x}, std::move(y), std::move(parameters),
                      {{"in", linear.in}, {"out", linear.out}});
}

int GraphBuilder::tied_linear(std::string_view name, int x, int table_parameter) {
  const Shape& table = graph_.parameters[as_index(table_parameter)].shape;
  const std::int64_t out = table[0];
  const std::int64_t in = table[1];
  return add_operator(name, OperatorKind::linear, {x}, with_last(shape(x), out), {table_parameter},
                      {{"in", in}, {"out", out}});
}

int GraphBuilder::layer_norm(std::string_view name, int x, double epsilon) {
  const std::int64_t width = shape(x).back();
  const int weight = add_parameter(full(name), "weight", {width}, constant(1.0));
  const int bias = add_parameter(full(name), "bias", {width}, constant(0.0));
  const int y = add_operator(name, OperatorKind::layer_norm, {x}, shape(x), {weight, bias},
                             {{"width", width}, {"epsilon", epsilon}});
  graph_.operators.back().outputs.push_back(
      add_tensor(full(name) + ".statistics", with_last(shape(x), 2), TensorRole::statistic));
  return y;
}

int GraphBuilder::rms_norm(std::string_view name, int x, double epsilon) {
  const std::int64_t width = shape(x).back();
  const int weight = add_parameter(full(name), "weight", {width}, constant(1.0));
  const int y =
      add_operator(name, OperatorKind::rms_norm, {x}, shape(x), {weight}, {{"width", width}, {"epsilon", epsilon}});
  Shape statistics = shape(x);
  statistics.pop_back();
  graph_.operators.back().outputs.push_back(
      add_tensor(full(name) + ".statistics", std::move(statistics), TensorRole::statistic));
  return y;
}

int GraphBuilder::rotary(std::string_view name, int qkv, const Heads& heads, double theta) {
  return add_operator(
      name, OperatorKind::rotary, {qkv}, shape(qkv), {},
      {{"heads", heads.heads}, {"kv_heads", heads.kv_heads}, {"head_dim", heads.head_dim}, {"theta", theta}});
}

int GraphBuilder::causal_attention(std::string_view name, int qkv, const Heads& heads, double dropout) {
  return attention(name, qkv, heads, dropout, true);
}

int GraphBuilder::full_attention(std::string_view name, int qkv, const Heads& heads, double dropout) {
  return attention(name, qkv, heads, dropout, false);
}

int GraphBuilder::attention(std::string_view name, int qkv, const Heads& heads, double dropout, bool is_causal) {
  const std::int64_t sequence = shape(qkv)[0];
  const int y = add_operator(name, OperatorKind::attention, {qkv}, {sequence, heads.heads * heads.head_dim}, {},
                             {{"heads", heads.heads},
                              {"kv_heads", heads.kv_heads},
                              {"head_dim", heads.head_dim},
                              {"causal", std::int64_t{is_causal ? 1 : 0}},
                              {"dropout", dropout}});
  graph_.operators.back().outputs.push_back(
      add_tensor(full(name) + ".statistics", {heads.heads, sequence}, TensorRole::statistic));
  return y;
}

int GraphBuilder::gelu(std::string_view name, int x) {
  return add_operator(name, OperatorKind::gelu, {x}, shape(x), {}, {});
}

int GraphBuilder::gelu_erf(std::string_view name, int x) {
  return add_operator(name, OperatorKind::gelu_erf, {x}, shape(x), {}, {});
}

int GraphBuilder::relu(std::string_view name, int x) {
  return add_operator(name, OperatorKind::relu, {x}, shape(x), {}, {});
}

int GraphBuilder::swiglu(std::string_view name, int x) {
  const std::int64_t width = shape(x).back() / 2;
  return add_operator(name, OperatorKind::swiglu, {x}, with_last(shape(x), width), {}, {{"width", width}});
}

int GraphBuilder::add(std::string_view name, int a, int b) {
  return add_operator(name, OperatorKind::add, {a, b}, shape(a), {}, {});
}

int GraphBuilder::dropout(std::string_view name, int x, double probability) {
  if (probability == 0.0) {
    return x;
  }
  return add_operator(name, OperatorKind::dropout, {x}, shape(x), {}, {{"probability", probability}});
}

int GraphBuilder::convolution(std::string_view name, int x, const Convolution& conv) {
  const std::int64_t height = shape(x)[0];
  const std::int64_t width = shape(x)[1];
  const std::int64_t in = shape(x)[2];
  std::vector<int> parameters = {
      add_parameter(full(name), "weight", {conv.out, conv.kernel, conv.kernel, in}, conv.weight)};
  if (conv.bias) parameters.push_back(add_parameter(full(name), "bias", {conv.out}, constant(0.0)));
  const Pool window{conv.kernel, conv.stride, conv.padding};
  return add_operator(name, OperatorKind::convolution, {x}, {slid(height, window), slid(width, window), conv.out},
                      std::move(parameters),
                      {{"in", in},
                       {"out", conv.out},
                       {"kernel", conv.kernel},
                       {"stride", conv.stride},
                       {"padding", conv.padding},
                       {"height", height},
                       {"width", width}});
}

int GraphBuilder::max_pool(std::string_view name, int x, const Pool& pool) {
  const std::int64_t height = shape(x)[0];
  const std::int64_t width = shape(x)[1];
  const std::int64_t channels = shape(x)[2];
  const int y = add_operator(name, OperatorKind::max_pool, {x}, {slid(height, pool), slid(width, pool), channels}, {},
                             {{"channels", channels},
                              {"kernel", pool.kernel},
                              {"stride", pool.stride},
                              {"padding", pool.padding},
                              {"height", height},
                              {"width", width}});
  graph_.operators.back().outputs.push_back(add_tensor(full(name) + ".indices", shape(y), TensorRole::indices));
  return y;
}

int GraphBuilder::global_average_pool(std::string_view name, int x) {
  const std::int64_t channels = shape(x)[2];
  return add_operator(name, OperatorKind::average_pool, {x}, {channels}, {},
                      {{"channels", channels}, {"height", shape(x)[0]}, {"width", shape(x)[1]}});
}

int GraphBuilder::class_token(std::string_view name, int x, const Initializer& initializer) {
  const std::int64_t height = shape(x)[0];
  const std::int64_t width = shape(x)[1];
  const std::int64_t channels = shape(x)[2];
  const std::int64_t tokens = height * width + 1;
  const int token = add_parameter(full(name), "token", {channels}, initializer);
  const int positions = add_parameter(full(name), "positions", {tokens, channels}, initializer);
  return add_operator(name, OperatorKind::class_token, {x}, {tokens, channels}, {token, positions},
                      {{"channels", channels}, {"height", height}, {"width", width}});
}

int GraphBuilder::first_row(std::string_view name, int x) {
  const std::int64_t width = shape(x).back();
  return add_operator(name, OperatorKind::first_row, {x}, {width}, {}, {{"width", width}});
}

int GraphBuilder::batch_norm(std::string_view name, int x, double epsilon, double momentum) {
  const std::int64_t channels = shape(x).back();
  const int weight = add_parameter(full(name), "weight", {channels}, constant(1.0));
  const int bias = add_parameter(full(name), "bias", {channels}, constant(0.0));
  const int y = add_operator(name, OperatorKind::batch_norm, {x}, shape(x), {weight, bias},
                             {{"channels", channels}, {"epsilon", epsilon}, {"momentum", momentum}});
  graph_.operators.back().outputs.push_back(
      add_tensor(full(name) + ".statistics", {2 * channels}, TensorRole::statistic));
  return y;
}

int GraphBuilder::cross_entropy(std::string_view name, int logits, int targets) {
  const std::int64_t classes = shape(logits).back();
  const int loss =
      add_operator(name, OperatorKind::cross_entropy, {logits, targets}, shape(targets), {}, {{"classes", classes}});
  graph_.tensors[as_index(loss)].role = TensorRole::loss;
  return loss;
}

int GraphBuilder::parameter(std::string_view name) const {
  for (std::size_t i = 0; i < graph_.parameters.size(); ++i) {
    if (graph_.parameters[i].name == name) {
      return static_cast<int>(i);
    }
  }
  throw InternalError(fmt::format("model graph `{}` has no parameter `{}`", graph_.name, name));
}

const Shape& GraphBuilder::shape(int tensor) const { return graph_.tensors[as_index(tensor)].shape; }

ModelGraph GraphBuilder::finish(std::int64_t positions_per_sample) {
  STRATA_INVARIANT(!in_block_, "a block has not ended");
  graph_.positions_per_sample = positions_per_sample;
  assign_shape_classes(graph_);
  verify(graph_);
  return std::move(graph_);
}

std::string GraphBuilder::full(std::string_view name) const {
  return in_block_ ? fmt::format("{}.{}", graph_.blocks.back().name, name) : std::string(name);
}

int GraphBuilder::add_tensor(std::string name, Shape tensor_shape, TensorRole role) {
  graph_.tensors.push_back({std::move(name), std::move(tensor_shape), role});
  return static_cast<int>(graph_.tensors.size()) - 1;
}

int GraphBuilder::add_parameter(const std::string& owner, std::string_view name, Shape parameter_shape,
                                const Initializer& initializer) {
  const bool decays = parameter_shape.size() > 1;
  graph_.parameters.push_back({fmt::format("{}.{}", owner, name), std::move(parameter_shape), initializer, decays});
  return static_cast<int>(graph_.parameters.size()) - 1;
}

int GraphBuilder::add_operator(std::string_view name, OperatorKind kind, std::vector<int> inputs, Shape output_shape,
                               std::vector<int> parameters, Attributes attributes) {
  const int output = add_tensor(full(name), std::move(output_shape), TensorRole::activation);
  graph_.operators.push_back({.name = full(name),
                              .kind = kind,
                              .inputs = std::move(inputs),
                              .outputs = {output},
                              .parameters = std::move(parameters),
                              .attributes = std::move(attributes),
                              .block = in_block_ ? static_cast<int>(graph_.blocks.size()) - 1 : -1});
  return output;
}

}  // namespace strata
