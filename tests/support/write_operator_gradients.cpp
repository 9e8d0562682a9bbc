/// @file
/// Runs every operator's kernels forward and backward on random values at shapes that are no multiples of vector or
/// tile widths, and writes what went in and what came out, for tests/unit/exec/test_against_pytorch.py.
///
/// Usage: write_operator_gradients <folder>
///
/// Writes <folder>/values.f32, all tensors one after the other, widened to f32 (exact for bf16), and
/// <folder>/cases.json: [{operator, dtype, options: {…}, tensors: {name: {shape, offset in elements}}}].

#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "exec/cpu/kernels/activation.hpp"
#include "exec/cpu/kernels/attention.hpp"
#include "exec/cpu/kernels/batch_norm.hpp"
#include "exec/cpu/kernels/class_token.hpp"
#include "exec/cpu/kernels/convolution.hpp"
#include "exec/cpu/kernels/cross_entropy.hpp"
#include "exec/cpu/kernels/embedding.hpp"
#include "exec/cpu/kernels/layer_norm.hpp"
#include "exec/cpu/kernels/linear.hpp"
#include "exec/cpu/kernels/pooling.hpp"
#include "exec/cpu/kernels/residual.hpp"
#include "exec/cpu/kernels/rms_norm.hpp"
#include "exec/cpu/kernels/rotary.hpp"
#include "unit/exec/dense_reference.hpp"

namespace {

using namespace strata;
using test::Tensor;
using test::Workspace;
using Shape = std::vector<std::int64_t>;

std::int64_t num_elements(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

/// The tensors of one operator in one dtype. Inputs are random in [-1, 1), outputs are the kernels' to write.
class Case {
 public:
  Case(std::string name, DType dtype, nlohmann::json options = nlohmann::json::object())
      : name_(std::move(name)), dtype_(dtype), options_(std::move(options)) {}

  DType dtype() const { return dtype_; }
  void* input(const std::string& name, const Shape& shape) { return keep(name, shape, dtype_, true); }
  void* output(const std::string& name, const Shape& shape) { return keep(name, shape, dtype_, false); }
  /// Gradients of parameters, statistics and losses are f32 whatever the activations are.
  float* f32_output(const std::string& name, const Shape& shape) {
    return static_cast<float*>(keep(name, shape, DType::f32, false));
  }
  /// Uniform in [0, limit).
  const std::int32_t* indices(const std::string& name, std::int64_t size, std::int64_t limit) {
    const RandomStream random{.seed = 11, .stream = stream_of(name)};
    std::vector<std::int32_t>& values = indices_[name];
    for (std::int64_t i = 0; i < size; ++i) {
      values.push_back(
          static_cast<std::int32_t>(random.word(static_cast<std::uint64_t>(i)) % static_cast<std::uint64_t>(limit)));
    }
    return values.data();
  }

  nlohmann::json write(std::ofstream& values, std::int64_t& offset) const {
    nlohmann::json tensors;
    const auto put = [&](const std::string& name, const Shape& shape, const std::vector<float>& numbers) {
      tensors[name] = {{"shape", shape}, {"offset", offset}};
      values.write(reinterpret_cast<const char*>(numbers.data()),
                   static_cast<std::streamsize>(numbers.size() * sizeof(float)));
      offset += static_cast<std::int64_t>(numbers.size());
    };
    for (const auto& [name, entry] : tensors_) {
      const std::vector<double> wide = entry.second.values();
      put(name, entry.first, std::vector<float>(wide.begin(), wide.end()));
    }
    for (const auto& [name, numbers] : indices_) {
      put(name, {static_cast<std::int64_t>(numbers.size())}, std::vector<float>(numbers.begin(), numbers.end()));
    }
    return {
        {"operator", name_}, {"dtype", std::string(to_string(dtype_))}, {"options", options_}, {"tensors", tensors}};
  }

 private:
  void* keep(const std::string& name, const Shape& shape, DType dtype, bool random) {
    const std::int64_t size = num_elements(shape);
    Tensor tensor = random ? test::random_tensor(dtype, size, name.c_str()) : Tensor(dtype, size);
    return tensors_.emplace(name, std::pair(shape, std::move(tensor))).first->second.second.data();
  }

  std::string name_;
  DType dtype_;
  nlohmann::json options_;
  std::map<std::string, std::pair<Shape, Tensor>> tensors_;
  std::map<std::string, std::vector<std::int32_t>> indices_;
};

Case linear(DType dtype) {
  Case c("linear", dtype);
  const cpu::LinearDims dims{.tokens = 33, .in = 65, .out = 31, .dtype = dtype, .bias = true};
  const void* x = c.input("x", {33, 65});
  const void* weight = c.input("weight", {31, 65});
  const void* bias = c.input("bias", {31});
  const void* dy = c.input("dy", {33, 31});
  Workspace forward(cpu::linear_forward_workspace_bytes(dims, false));
  cpu::linear_forward(dims, x, weight, bias, c.output("y", {33, 31}), false, forward.span());
  Workspace for_input(cpu::linear_backward_input_workspace_bytes(dims, false));
  cpu::linear_backward_input(dims, dy, weight, c.output("dx", {33, 65}), false, for_input.span());
  Workspace for_weight(cpu::linear_backward_weight_workspace_bytes(dims, false));
  cpu::linear_backward_weight(dims, dy, x, c.f32_output("dweight", {31, 65}), c.f32_output("dbias", {31}), {},
                              for_weight.span());
  return c;
}

Case layer_norm(DType dtype) {
  Case c("layer_norm", dtype, {{"epsilon", 1e-5}});
  const cpu::LayerNormDims dims{.rows = 13, .width = 77, .dtype = dtype};
  const void* x = c.input("x", {13, 77});
  const void* weight = c.input("weight", {77});
  float* statistics = c.f32_output("statistics", {13, 2});
  cpu::layer_norm_forward(dims, x, weight, c.input("bias", {77}), c.output("y", {13, 77}), statistics);
  Workspace workspace(cpu::layer_norm_backward_workspace_bytes(dims));
  cpu::layer_norm_backward(dims,
                           {.dy = c.input("dy", {13, 77}),
                            .x = x,
                            .weight = weight,
                            .statistics = statistics,
                            .dx = c.output("dx", {13, 77}),
                            .dweight = c.f32_output("dweight", {77}),
                            .dbias = c.f32_output("dbias", {77})},
                           {}, workspace.span());
  return c;
}

Case rms_norm(DType dtype) {
  Case c("rms_norm", dtype, {{"epsilon", 1e-5}});
  const cpu::RmsNormDims dims{.rows = 13, .width = 77, .dtype = dtype};
  const void* x = c.input("x", {13, 77});
  const void* weight = c.input("weight", {77});
  float* statistics = c.f32_output("statistics", {13});
  cpu::rms_norm_forward(dims, x, weight, c.output("y", {13, 77}), statistics);
  Workspace workspace(cpu::rms_norm_backward_workspace_bytes(dims));
  cpu::rms_norm_backward(dims,
                         {.dy = c.input("dy", {13, 77}),
                          .x = x,
                          .weight = weight,
                          .statistics = statistics,
                          .dx = c.output("dx", {13, 77}),
                          .dweight = c.f32_output("dweight", {77})},
                         {}, workspace.span());
  return c;
}

Case batch_norm(DType dtype) {
  Case c("batch_norm", dtype, {{"epsilon", 1e-5}});
  const cpu::BatchNormDims dims{.rows = 70, .channels = 19, .dtype = dtype, .parameter_dtype = dtype};
  const void* x = c.input("x", {70, 19});
  const void* weight = c.input("weight", {19});
  float* mean = c.f32_output("mean", {19});
  float* inverse_deviation = c.f32_output("inverse_deviation", {19});
  Workspace workspace(cpu::batch_norm_workspace_bytes(dims));
  cpu::batch_norm_forward(dims, {.x = x, .gamma = weight, .beta = c.input("bias", {19}), .y = c.output("y", {70, 19})},
                          {.mean = mean, .inverse_deviation = inverse_deviation}, workspace.span());
  cpu::batch_norm_backward(dims,
                           {.dy = c.input("dy", {70, 19}),
                            .x = x,
                            .gamma = weight,
                            .mean = mean,
                            .inverse_deviation = inverse_deviation,
                            .dx = c.output("dx", {70, 19}),
                            .dgamma = c.f32_output("dweight", {19}),
                            .dbeta = c.f32_output("dbias", {19})},
                           false, workspace.span());
  return c;
}

/// @p reads_output: backward takes what forward wrote instead of what it read.
template <typename Forward, typename Backward>
Case activation(const char* name, DType dtype, Forward forward, Backward backward, bool reads_output = false) {
  constexpr std::int64_t n = 1037;
  Case c(name, dtype);
  const void* x = c.input("x", {n});
  void* y = c.output("y", {n});
  forward(dtype, x, y, n);
  backward(dtype, c.input("dy", {n}), reads_output ? y : x, c.output("dx", {n}), n);
  return c;
}

Case swiglu(DType dtype) {
  Case c("swiglu", dtype);
  const void* x = c.input("x", {11, 2 * 37});
  cpu::swiglu_forward(dtype, x, c.output("y", {11, 37}), 11, 37);
  cpu::swiglu_backward(dtype, c.input("dy", {11, 37}), x, c.output("dx", {11, 2 * 37}), 11, 37);
  return c;
}

Case attention(DType dtype, std::int64_t seq, std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim,
               bool causal) {
  Case c("attention", dtype, {{"causal", causal}});
  const cpu::AttentionDims dims{.batch = 2,
                                .seq = seq,
                                .num_heads = heads,
                                .num_kv_heads = kv_heads,
                                .head_dim = head_dim,
                                .dtype = dtype,
                                .causal = causal};
  const Shape query{2, seq, heads, head_dim};
  const Shape key{2, seq, kv_heads, head_dim};
  const cpu::ConstTokenRows q{c.input("q", query), heads * head_dim};
  const cpu::ConstTokenRows k{c.input("k", key), kv_heads * head_dim};
  const cpu::ConstTokenRows v{c.input("v", key), kv_heads * head_dim};
  void* y = c.output("y", query);
  float* log_sum_exp = c.f32_output("log_sum_exp", {2, heads, seq});
  Workspace forward(cpu::attention_forward_workspace_bytes(dims));
  cpu::attention_forward(dims, {.q = q, .k = k, .v = v, .y = {y, heads * head_dim}, .log_sum_exp = log_sum_exp}, {},
                         forward.span());
  Workspace backward(cpu::attention_backward_workspace_bytes(dims));
  cpu::attention_backward(dims,
                          {.dy = {c.input("dy", query), heads * head_dim},
                           .q = q,
                           .k = k,
                           .v = v,
                           .y = {y, heads * head_dim},
                           .log_sum_exp = log_sum_exp,
                           .dq = {c.output("dq", query), heads * head_dim},
                           .dk = {c.output("dk", key), kv_heads * head_dim},
                           .dv = {c.output("dv", key), kv_heads * head_dim}},
                          {}, backward.span());
  return c;
}

Case rotary(DType dtype) {
  Case c("rotary", dtype, {{"theta", 10000.0}});
  const Shape shape{2, 11, 3, 14};
  const cpu::RotaryDims dims{.batch = 2, .seq = 11, .num_heads = 3, .head_dim = 14, .dtype = dtype};
  cpu::rotary_forward(dims, {c.input("x", shape), 42}, {c.output("y", shape), 42});
  cpu::rotary_backward(dims, {c.input("dy", shape), 42}, {c.output("dx", shape), 42});
  return c;
}

Case embedding(DType dtype) {
  Case c("embedding", dtype);
  const cpu::EmbeddingDims dims{
      .rows = 26, .sequence = 13, .width = 37, .vocabulary = 19, .num_positions = 13, .dtype = dtype};
  const std::int32_t* tokens = c.indices("tokens", 26, 19);
  cpu::embedding_forward(dims, tokens, c.input("table", {19, 37}), c.input("positions", {13, 37}),
                         c.output("y", {26, 37}));
  Workspace workspace(cpu::embedding_backward_workspace_bytes(dims));
  cpu::embedding_backward(dims,
                          {.tokens = tokens,
                           .dy = c.input("dy", {26, 37}),
                           .dtable = c.f32_output("dtable", {19, 37}),
                           .dpositions = c.f32_output("dpositions", {13, 37})},
                          {}, workspace.span());
  return c;
}

Case cross_entropy(DType dtype) {
  Case c("cross_entropy", dtype);
  const cpu::CrossEntropyDims dims{.rows = 9, .classes = 101, .dtype = dtype};
  const void* logits = c.input("logits", {9, 101});
  void* dlogits = c.output("dlogits", {9, 101});
  std::memcpy(dlogits, logits, static_cast<std::size_t>(9 * 101 * size_of(dtype)));
  cpu::cross_entropy_gradient(dims, dlogits, c.indices("targets", 9, 101), 1.0F / 9, c.f32_output("loss", {9}));
  return c;
}

Case convolution(DType dtype, std::int64_t stride) {
  Case c("convolution", dtype, {{"stride", stride}, {"padding", 1}});
  const cpu::ConvolutionDims dims{
      .images = 2, .height = 9, .width = 7, .in = 5, .out = 19, .stride = stride, .dtype = dtype, .bias = true};
  const Shape y{2, dims.out_height(), dims.out_width(), 19};
  const void* x = c.input("x", {2, 9, 7, 5});
  const void* weight = c.input("weight", {19, 3, 3, 5});
  const void* dy = c.input("dy", y);
  Workspace forward(cpu::convolution_forward_workspace_bytes(dims));
  cpu::convolution_forward(dims, x, weight, c.input("bias", {19}), c.output("y", y), forward.span());
  Workspace for_input(cpu::convolution_backward_input_workspace_bytes(dims));
  cpu::convolution_backward_input(dims, dy, weight, c.output("dx", {2, 9, 7, 5}), for_input.span());
  Workspace for_weight(cpu::convolution_backward_weight_workspace_bytes(dims, false));
  cpu::convolution_backward_weight(dims, dy, x, c.f32_output("dweight", {19, 3, 3, 5}), c.f32_output("dbias", {19}),
                                   false, for_weight.span());
  return c;
}

Case max_pool(DType dtype, std::int64_t kernel, std::int64_t padding) {
  Case c("max_pool", dtype, {{"kernel", kernel}, {"stride", 2}, {"padding", padding}});
  const cpu::MaxPoolDims dims{
      .images = 2, .height = 9, .width = 7, .channels = 5, .kernel = kernel, .padding = padding, .dtype = dtype};
  const Shape y{2, dims.out_height(), dims.out_width(), 5};
  std::vector<std::uint8_t> places(static_cast<std::size_t>(cpu::max_pool_indices_bytes(dims)));
  cpu::max_pool_forward(dims, c.input("x", {2, 9, 7, 5}), c.output("y", y), places.data());
  cpu::max_pool_backward(dims, c.input("dy", y), places.data(), c.output("dx", {2, 9, 7, 5}));
  return c;
}

Case average_pool(DType dtype) {
  Case c("average_pool", dtype);
  const cpu::AveragePoolDims dims{.images = 3, .positions = 35, .channels = 19, .dtype = dtype};
  cpu::average_pool_forward(dims, c.input("x", {3, 35, 19}), c.output("y", {3, 19}));
  cpu::average_pool_backward(dims, c.input("dy", {3, 19}), c.output("dx", {3, 35, 19}));
  return c;
}

Case class_token(DType dtype) {
  Case c("class_token", dtype);
  const cpu::ClassTokenDims dims{.images = 3, .positions = 20, .channels = 19, .dtype = dtype};
  cpu::class_token_forward(dims, c.input("x", {3, 20, 19}), c.input("token", {19}), c.input("positions", {21, 19}),
                           c.output("y", {3, 21, 19}));
  cpu::class_token_backward(dims,
                            {.dy = c.input("dy", {3, 21, 19}),
                             .dx = c.output("dx", {3, 20, 19}),
                             .dtoken = c.f32_output("dtoken", {19}),
                             .dpositions = c.f32_output("dpositions", {21, 19})},
                            {});
  return c;
}

Case first_row(DType dtype) {
  Case c("first_row", dtype);
  const cpu::FirstRowDims dims{.samples = 3, .sequence = 7, .width = 19, .dtype = dtype};
  cpu::first_row_forward(dims, c.input("x", {3, 7, 19}), c.output("y", {3, 19}));
  cpu::first_row_backward(dims, c.input("dy", {3, 19}), c.output("dx", {3, 7, 19}));
  return c;
}

Case residual(DType dtype) {
  Case c("residual", dtype);
  cpu::add(dtype, c.input("x", {1037}), c.input("branch", {1037}), c.output("y", {1037}), 1037);
  return c;
}

void write_cases(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  std::ofstream values(folder / "values.f32", std::ios::binary);
  std::ofstream index(folder / "cases.json");
  values.exceptions(std::ios::failbit | std::ios::badbit);
  index.exceptions(std::ios::failbit | std::ios::badbit);
  std::int64_t offset = 0;
  nlohmann::json cases = nlohmann::json::array();
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const Case& c : {linear(dtype),
                          layer_norm(dtype),
                          rms_norm(dtype),
                          batch_norm(dtype),
                          activation("gelu", dtype, cpu::gelu_forward, cpu::gelu_backward),
                          activation("gelu_erf", dtype, cpu::gelu_erf_forward, cpu::gelu_erf_backward),
                          activation("relu", dtype, cpu::relu_forward, cpu::relu_backward, true),
                          activation("silu", dtype, cpu::silu_forward, cpu::silu_backward),
                          swiglu(dtype),
                          attention(dtype, 37, 6, 2, 24, true),
                          attention(dtype, 70, 3, 3, 17, false),
                          rotary(dtype),
                          embedding(dtype),
                          cross_entropy(dtype),
                          convolution(dtype, 1),
                          convolution(dtype, 2),
                          max_pool(dtype, 2, 0),
                          max_pool(dtype, 3, 1),
                          average_pool(dtype),
                          class_token(dtype),
                          first_row(dtype),
                          residual(dtype)}) {
      cases.push_back(c.write(values, offset));
    }
  }
  index << cases.dump(1) << '\n';
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: write_operator_gradients <folder>\n", stderr);
    return 2;
  }
  try {
    write_cases(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "write_operator_gradients: %s\n", error.what());
    return 1;
  }
  return 0;
}
