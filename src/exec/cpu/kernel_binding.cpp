#include "exec/cpu/kernel_binding.hpp"

#include <fmt/core.h>

#include "base/error.hpp"
#include "base/random.hpp"
#include "exec/cpu/kernels/activation.hpp"
#include "exec/cpu/kernels/attention.hpp"
#include "exec/cpu/kernels/batch_norm.hpp"
#include "exec/cpu/kernels/class_token.hpp"
#include "exec/cpu/kernels/column_sums.hpp"
#include "exec/cpu/kernels/convolution.hpp"
#include "exec/cpu/kernels/cross_entropy.hpp"
#include "exec/cpu/kernels/dropout.hpp"
#include "exec/cpu/kernels/elementwise.hpp"
#include "exec/cpu/kernels/embedding.hpp"
#include "exec/cpu/kernels/initialize.hpp"
#include "exec/cpu/kernels/layer_norm.hpp"
#include "exec/cpu/kernels/linear.hpp"
#include "exec/cpu/kernels/optimizer.hpp"
#include "exec/cpu/kernels/permute.hpp"
#include "exec/cpu/kernels/pooling.hpp"
#include "exec/cpu/kernels/quantize.hpp"
#include "exec/cpu/kernels/residual.hpp"
#include "exec/cpu/kernels/rms_norm.hpp"
#include "exec/cpu/kernels/rotary.hpp"
#include "exec/cpu/kernels/split_rows.hpp"
#include "exec/cpu/kernels/top_k.hpp"
#include "exec/cpu/kernels/winograd_choice.hpp"
#include "ir/model/model_graph.hpp"

namespace strata::cpu {

namespace {

BoundKernel bind_load(const Arguments& a, InputSource& inputs) {
  const std::int64_t first = a.integer("first_sample");
  const std::int64_t samples = a.integer("samples");
  if (a.instruction().kernel == Kernel::load_targets) {
    const std::span targets(a.output_as<std::int32_t>(0), static_cast<std::size_t>(a.output_elements(0)));
    return [=, &inputs](const StepContext& c) { inputs.load_targets(c.step, first, samples, targets); };
  }
  const bool has_labels = a.num_outputs() > 1;
  const std::span labels(a.output_as<std::int32_t>(1), static_cast<std::size_t>(has_labels ? a.output_elements(1) : 0));
  if (a.instruction().kernel == Kernel::load_tokens) {
    const std::span tokens(a.output_as<std::int32_t>(0), static_cast<std::size_t>(a.output_elements(0)));
    return [=, &inputs](const StepContext& c) { inputs.load_tokens(c.step, first, samples, tokens, labels); };
  }
  const std::int64_t n = a.output_elements(0);
  if (a.output_dtype(0) == DType::f32) {
    const std::span pixels(a.output_as<float>(0), static_cast<std::size_t>(n));
    return [=, &inputs](const StepContext& c) { inputs.load_images(c.step, first, samples, pixels, labels); };
  }
  const std::span staged(reinterpret_cast<float*>(a.workspace().data()), static_cast<std::size_t>(n));
  return [=, &inputs, y = a.output(0), dtype = a.output_dtype(0)](const StepContext& c) {
    inputs.load_images(c.step, first, samples, staged, labels);
    cast(DType::f32, staged.data(), dtype, y, n);
  };
}

BoundKernel bind_initialize(const Arguments& a, std::uint64_t seed) {
  const RandomStream random{seed, stream_of(a.instruction().name)};
  const Buffer& buffer = a.output_buffer(0);
  const std::int64_t first = buffer.parameter_begin + a.instruction().outputs[0].begin;
  // Element i of the parameter has its value wherever it is held.
  const auto runs = [first, n = a.output_elements(0), block = buffer.block, dtype = buffer.dtype,
                     y = a.output(0)](const auto& fill_run) {
    block.for_runs(first, n, [&](std::int64_t in_whole, std::int64_t at, std::int64_t count) {
      fill_run(y + at * size_of(dtype), count, static_cast<std::uint64_t>(in_whole));
    });
  };
  const auto low = static_cast<float>(a.real("a"));
  const auto high = static_cast<float>(a.real("b"));
  const std::int64_t n = a.output_elements(0);
  switch (static_cast<Initializer::Kind>(a.integer("distribution"))) {
    case Initializer::Kind::constant:
      return [=, y = a.output(0), dtype = buffer.dtype](const StepContext&) { fill(dtype, y, n, low); };
    case Initializer::Kind::normal:
      return [=, dtype = buffer.dtype](const StepContext&) {
        runs([&](std::byte* y, std::int64_t count, std::uint64_t in_whole) {
          initialize_normal({.dtype = dtype, .y = y, .n = count, .random = random, .first_element = in_whole}, low,
                            high);
        });
      };
    case Initializer::Kind::uniform:
      return [=, dtype = buffer.dtype](const StepContext&) {
        runs([&](std::byte* y, std::int64_t count, std::uint64_t in_whole) {
          initialize_uniform({.dtype = dtype, .y = y, .n = count, .random = random, .first_element = in_whole}, low,
                             high);
        });
      };
  }
  throw InternalError("no such distribution");
}

BoundKernel bind_optimizer(const Arguments& a) {
  const Kernel kernel = a.instruction().kernel;
  const int num_states = kernel == Kernel::adam ? 2 : kernel == Kernel::sgd_momentum ? 1 : 0;
  const ParameterSlice slice{.n = a.output_elements(0),
                             .master = a.output_as<float>(0),
                             .gradient = a.input(0),
                             .gradient_dtype = a.input_dtype(0),
                             .gradient_factor = a.input_as<float>(1),
                             .compute = a.output_as<bf16>(1 + num_states)};
  if (kernel == Kernel::adam) {
    AdamOptions options{.beta1 = a.real("beta1"),
                        .beta2 = a.real("beta2"),
                        .epsilon = a.real("epsilon"),
                        .weight_decay = a.real("weight_decay"),
                        .decoupled = a.integer("decoupled") != 0};
    return [=, m = a.output_as<float>(1), v = a.output_as<float>(2)](const StepContext& c) mutable {
      options.learning_rate = c.learning_rate;
      options.step = c.step + 1;
      adam_update(options, slice, m, v);
    };
  }
  SgdOptions options{.momentum = num_states == 1 ? a.real("momentum") : 0.0, .weight_decay = a.real("weight_decay")};
  return [=, momentum = num_states == 1 ? a.output_as<float>(1) : nullptr](const StepContext& c) mutable {
    options.learning_rate = c.learning_rate;
    sgd_update(options, slice, momentum);
  };
}

BoundKernel bind_quantized(const Arguments& a, const QuantizedDims& d) {
  if (a.instruction().kernel == Kernel::quantize) {
    return [=, nodes = a.integer("nodes"), x = a.input(0), packed = a.output_as<std::uint8_t>(0)](const StepContext&) {
      quantize(d, nodes, x, packed);
    };
  }
  return [=, pieces = a.integer("pieces"), packed = a.input_as<std::uint8_t>(0), y = a.output(0),
          add = a.accumulates(0)](const StepContext&) { dequantize(d, pieces, packed, y, add); };
}

/// What tensor layouts bring with them.
BoundKernel bind_laid_out(const Arguments& a, const KernelDims& s) {
  const auto in0 = a.input(0);
  const auto in1 = a.input(1);
  const auto in2 = a.input(2);
  const auto in3 = a.input(3);
  const auto out0 = a.output(0);
  switch (a.instruction().kernel) {
    case Kernel::permute: return [=, d = s.permute()](const StepContext&) { permute(d, in0, out0); };
    case Kernel::norm_partial:
      return [=, d = s.split_norm(), partial = a.output_as<float>(0)](const StepContext&) {
        norm_partial(d, in0, partial);
      };
    case Kernel::norm_apply:
      return [d = s.split_norm(), operands = NormApplyOperands{.x = in0,
                                                               .all = a.input_as<float>(1),
                                                               .weight = in2,
                                                               .bias = in3,
                                                               .y = out0,
                                                               .statistics = a.output_as<float>(1)}](
                 const StepContext&) { norm_apply(d, operands); };
    case Kernel::norm_backward_partial:
      return [d = s.split_norm(),
              operands = NormBackwardPartialOperands{.dy = in0,
                                                     .x = in1,
                                                     .weight = in2,
                                                     .statistics = a.input_as<float>(3),
                                                     .partial = a.output_as<float>(0),
                                                     .dweight = a.output(1),
                                                     .dbias = a.output(2)},
              add = s.accumulates_parameters(1, a.num_outputs()),
              workspace = a.workspace()](const StepContext&) { norm_backward_partial(d, operands, add, workspace); };
    case Kernel::norm_backward_apply:
      return [d = s.split_norm(),
              operands = NormBackwardApplyOperands{.dy = in0,
                                                   .x = in1,
                                                   .weight = in2,
                                                   .statistics = a.input_as<float>(3),
                                                   .all = a.input_as<float>(4),
                                                   .dx = out0},
              add = a.accumulates(0)](const StepContext&) { norm_backward_apply(d, operands, add); };
    case Kernel::cross_entropy_partial:
      return [=, d = s.split_cross_entropy(), targets = a.input_as<std::int32_t>(1),
              partial = a.output_as<float>(0)](const StepContext&) { cross_entropy_partial(d, in0, targets, partial); };
    case Kernel::cross_entropy_apply:
      STRATA_INVARIANT(a.input(0) == a.output(1), "the gradient stands where the logits were");
      return [=, d = s.split_cross_entropy(), logits = a.output(1), targets = a.input_as<std::int32_t>(1),
              all = a.input_as<float>(2), loss = a.output_as<float>(0), scale = s.real("scale")](const StepContext&) {
        cross_entropy_apply(d, logits, targets, all, scale, loss);
      };
    default: throw InternalError("no such kernel");
  }
}

BoundKernel bind_dropout(const Arguments& a, const KernelDims& s, std::uint64_t seed) {
  const auto call = a.instruction().kernel == Kernel::dropout_forward ? dropout_forward : dropout_backward;
  const std::uint64_t stream = stream_of(a.instruction().name);
  const Dropout dropout{.probability = static_cast<float>(a.real("probability")),
                        .random = {},
                        .first_element = static_cast<std::uint64_t>(a.integer("first_element"))};
  return [=, x = a.input(0), y = a.output(0), dtype = a.input_dtype(0), d = s.permute()](const StepContext& c) {
    Dropout part = dropout;
    part.random = random_stream(seed, stream, c.step);
    for (std::int64_t i = 0; i < d.elements;) {
      const PermuteDims::Place place = d.place(i);
      part.first_element = dropout.first_element + static_cast<std::uint64_t>(place.at);
      const std::int64_t at = i * size_of(dtype);
      call(dtype, x + at, y + at, place.neighbours, part);
      i += place.neighbours;
    }
  };
}

ConvolutionDims convolution_dims(const KernelDims& s, const Numerics& numerics) {
  ConvolutionDims dims = s.convolution();
  dims.winograd = numerics.winograd;
  return dims;
}

/// Kernels with dense operands: matrix products, convolutions and norms.
BoundKernel bind_dense(const Arguments& a, const KernelDims& s, const Numerics& numerics) {
  const auto in0 = a.input(0);
  const auto in1 = a.input(1);
  const auto in2 = a.input(2);
  const auto out0 = a.output(0);
  const auto out1 = a.output(1);
  const auto out2 = a.output(2);
  const auto workspace = a.workspace();
  const int num_outputs = a.num_outputs();
  switch (a.instruction().kernel) {
    case Kernel::linear_forward:
      return [=, d = s.linear(), x = s.columns(in0, s.input(0)), before = out1 != nullptr ? out1 : out0,
              add = s.accumulates(0)](const StepContext&) {
        linear_forward(d, x, in1, in2, before, add, workspace);
        if (d.gelu) gelu_forward(d.dtype, before, out0, d.tokens * d.out);
      };
    case Kernel::linear_backward_input:
      return [=, d = s.linear(), dx = s.columns(out0, s.output(0)), add = s.accumulates(0)](const StepContext&) {
        linear_backward_input(d, in0, in1, dx, add, workspace);
        if (d.gelu) gelu_backward(d.dtype, dx, in2, dx, d.tokens * d.in);
      };
    case Kernel::linear_backward_weight:
      return [=, d = s.linear(), x = s.columns(in0, s.input(0)),
              add = LinearAccumulate{s.accumulates(0), s.accumulates(1)}](const StepContext&) {
        linear_backward_weight(d, in1, x, out0, out1, add, workspace);
      };
    case Kernel::convolution_forward:
      return [=, d = convolution_dims(s, numerics)](const StepContext&) {
        convolution_forward(d, in0, in1, in2, out0, workspace);
      };
    case Kernel::convolution_backward_input:
      return [=, d = convolution_dims(s, numerics)](const StepContext&) {
        convolution_backward_input(d, in0, in1, out0, workspace);
      };
    case Kernel::convolution_backward_weight:
      return [=, d = convolution_dims(s, numerics), add = s.accumulates_parameters(0, num_outputs)](
                 const StepContext&) { convolution_backward_weight(d, in1, in0, out0, out1, add, workspace); };
    case Kernel::layer_norm_forward:
      return [=, d = s.layer_norm(), statistics = a.output_as<float>(1), residual = a.input(3)](const StepContext&) {
        if (residual != nullptr) add(d.dtype, in0, residual, out2, d.rows * d.width);
        layer_norm_forward(d, residual != nullptr ? out2 : in0, in1, in2, out0, statistics);
      };
    case Kernel::layer_norm_backward:
      return [=, d = s.layer_norm(),
              operands = LayerNormBackwardOperands{.dy = in0,
                                                   .x = in1,
                                                   .weight = in2,
                                                   .statistics = a.input_as<float>(3),
                                                   .dx = out0,
                                                   .dweight = out1,
                                                   .dbias = out2},
              add = LayerNormAccumulate{s.accumulates(0), s.accumulates(1), s.accumulates(2)}](const StepContext&) {
        layer_norm_backward(d, operands, add, workspace);
      };
    case Kernel::rms_norm_forward:
      return [=, d = s.rms_norm(), statistics = a.output_as<float>(1)](const StepContext&) {
        if (in2 != nullptr) add(d.dtype, in0, in2, out2, d.rows * d.width);
        rms_norm_forward(d, in2 != nullptr ? out2 : in0, in1, out0, statistics);
      };
    case Kernel::rms_norm_backward:
      return
          [=, d = s.rms_norm(),
           operands =
               RmsNormBackwardOperands{
                   .dy = in0, .x = in1, .weight = in2, .statistics = a.input_as<float>(3), .dx = out0, .dweight = out1},
           add = RmsNormAccumulate{s.accumulates(0), s.accumulates(1)}](const StepContext&) {
            rms_norm_backward(d, operands, add, workspace);
          };
    case Kernel::batch_norm_forward:
      return [=, d = s.batch_norm(), operands = BatchNormOperands{.x = in0, .gamma = in1, .beta = in2, .y = out0},
              statistics = BatchNormStatistics{.mean = a.output_as<float>(1),
                                               .inverse_deviation = a.output_as<float>(1) + s.integer("channels")}](
                 const StepContext&) { batch_norm_forward(d, operands, statistics, workspace); };
    case Kernel::batch_norm_backward:
      return [=, d = s.batch_norm(),
              operands = BatchNormBackwardOperands{.dy = in0,
                                                   .x = in1,
                                                   .gamma = in2,
                                                   .mean = a.input_as<float>(3),
                                                   .inverse_deviation = a.input_as<float>(3) + s.integer("channels"),
                                                   .dx = out0,
                                                   .dgamma = out1,
                                                   .dbeta = out2},
              add = s.accumulates_parameters(1, num_outputs)](const StepContext&) {
        batch_norm_backward(d, operands, add, workspace);
      };
    case Kernel::batch_norm_inference:
      return [=, d = s.batch_norm(), operands = BatchNormOperands{.x = in0, .gamma = in1, .beta = in2, .y = out0},
              running = RunningStatistics{a.input_as<float>(3), a.input_as<float>(4)}](const StepContext&) {
        batch_norm_inference(d, operands, running, workspace);
      };
    case Kernel::running_statistics:
      return [d = s.batch_norm(), statistics = a.input_as<float>(0), decay = s.real("decay"), weight = s.real("weight"),
              running = RunningStatistics{a.output_as<float>(0), a.output_as<float>(1)}](const StepContext&) {
        update_running_statistics(d, statistics, decay, weight, running);
      };
    default: throw InternalError("not a dense kernel");
  }
}

/// Of a kernel whose output 0 is the gradient behind a bias, and whose output 1, where it is there, is that of the
/// bias.
template <typename Backward>
BoundKernel with_bias_gradient(const Arguments& a, const KernelDims& s, Backward backward) {
  if (a.num_outputs() < 2) return backward;
  return [=, d = s.bias_gradient(), dy = a.output(0), dbias = a.output(1),
          add = a.accumulates(1)](const StepContext& context) {
    backward(context);
    column_sums(d, dy, dbias, add);
  };
}

BoundKernel bind_elementwise(const Arguments& a, const KernelDims& s) {
  const auto in0 = a.input(0);
  const auto in1 = a.input(1);
  const auto out0 = a.output(0);
  const std::int64_t n = a.instruction().outputs[0].num_elements;
  const DType dtype = a.output_dtype(0);
  switch (a.instruction().kernel) {
    case Kernel::gelu_forward: return [=](const StepContext&) { gelu_forward(dtype, in0, out0, n); };
    case Kernel::gelu_backward: return [=](const StepContext&) { gelu_backward(dtype, in0, in1, out0, n); };
    case Kernel::gelu_erf_forward: return [=](const StepContext&) { gelu_erf_forward(dtype, in0, out0, n); };
    case Kernel::gelu_erf_backward: return [=](const StepContext&) { gelu_erf_backward(dtype, in0, in1, out0, n); };
    case Kernel::relu_forward: return [=](const StepContext&) { relu_forward(dtype, in0, out0, n); };
    case Kernel::relu_backward:
      return with_bias_gradient(a, s, [=](const StepContext&) { relu_backward(dtype, in0, in1, out0, n); });
    case Kernel::swiglu_forward:
      return [=, rows = a.integer("rows"), width = a.integer("width")](const StepContext&) {
        swiglu_forward(dtype, in0, out0, rows, width);
      };
    case Kernel::swiglu_backward:
      return [=, rows = a.integer("rows"), width = a.integer("width")](const StepContext&) {
        swiglu_backward(dtype, in0, in1, out0, rows, width);
      };
    case Kernel::add: return [=](const StepContext&) { add(dtype, in0, in1, out0, n); };
    case Kernel::accumulate:
      return [=, from = a.input_dtype(0)](const StepContext&) { accumulate(from, in0, dtype, out0, n); };
    case Kernel::copy: return [=, from = a.input_dtype(0)](const StepContext&) { cast(from, in0, dtype, out0, n); };
    case Kernel::fill:
      return [=, value = static_cast<float>(a.real("value"))](const StepContext&) { fill(dtype, out0, n, value); };
    case Kernel::sum_of_squares:
      return [=, from = a.input_dtype(0), elements = a.integer("elements"), sum = a.output_as<float>(0),
              add = a.accumulates(0)](const StepContext&) { sum_of_squares(from, in0, elements, sum, add); };
    case Kernel::clip_factor:
      return [sum = a.input_as<float>(0), factor = a.output_as<float>(0), norm = a.output_as<float>(1),
              clip = static_cast<float>(a.real("clip_norm"))](const StepContext&) {
        clip_factor(*sum, clip, factor, norm);
      };
    case Kernel::sum_loss:
      return [x = a.input_as<float>(0), elements = a.integer("elements"), scale = static_cast<float>(a.real("scale")),
              total = a.output_as<float>(0),
              add = a.accumulates(0)](const StepContext&) { sum(x, elements, scale, total, add); };
    default: throw InternalError("not an elementwise kernel");
  }
}

/// Heads [first, …) of every row of a fused [samples, sequence, num_heads · head_dim] tensor.
template <typename Rows>
Rows heads_of(std::byte* tensor, std::int64_t first, std::int64_t num_heads, const AttentionDims& d) {
  const std::int64_t row = num_heads * d.head_dim;
  return {tensor + first * d.head_dim * size_of(d.dtype), row};
}

/// Kernels along a sequence: rotation and attention, on a fused qkv.
BoundKernel bind_sequence(const Arguments& a, const KernelDims& s, std::uint64_t seed) {
  const Kernel kernel = a.instruction().kernel;
  if (kernel == Kernel::rotary_forward || kernel == Kernel::rotary_backward) {
    const RotaryDims d = s.rotary();
    const std::int64_t row = (d.num_heads + d.num_copied_heads) * d.head_dim;
    const ConstTokenRows x{a.input(0), row};
    const TokenRows y{a.output(0), row};
    return [=, call = kernel == Kernel::rotary_forward ? rotary_forward : rotary_backward](const StepContext&) {
      call(d, x, y);
    };
  }
  const AttentionDims d = s.attention();
  const std::int64_t fused = d.num_heads + 2 * d.num_kv_heads;
  const int qkv_input = kernel == Kernel::attention_forward ? 0 : 1;
  const auto q = heads_of<ConstTokenRows>(a.input(qkv_input), 0, fused, d);
  const auto k = heads_of<ConstTokenRows>(a.input(qkv_input), d.num_heads, fused, d);
  const auto v = heads_of<ConstTokenRows>(a.input(qkv_input), d.num_heads + d.num_kv_heads, fused, d);
  const std::uint64_t stream = stream_of(a.instruction().name);
  const auto workspace = a.workspace();
  if (kernel == Kernel::attention_forward) {
    const AttentionForwardOperands operands{.q = q,
                                            .k = k,
                                            .v = v,
                                            .y = heads_of<TokenRows>(a.output(0), 0, d.num_heads, d),
                                            .log_sum_exp = a.output_as<float>(1)};
    return
        [=](const StepContext& c) { attention_forward(d, operands, random_stream(seed, stream, c.step), workspace); };
  }
  const AttentionBackwardOperands operands{
      .dy = heads_of<ConstTokenRows>(a.input(0), 0, d.num_heads, d),
      .q = q,
      .k = k,
      .v = v,
      .y = heads_of<ConstTokenRows>(a.input(2), 0, d.num_heads, d),
      .log_sum_exp = a.input_as<float>(3),
      .dq = heads_of<TokenRows>(a.output(0), 0, fused, d),
      .dk = heads_of<TokenRows>(a.output(0), d.num_heads, fused, d),
      .dv = heads_of<TokenRows>(a.output(0), d.num_heads + d.num_kv_heads, fused, d)};
  return [=](const StepContext& c) { attention_backward(d, operands, random_stream(seed, stream, c.step), workspace); };
}

BoundKernel bind_others(const Arguments& a, const KernelDims& s) {
  const auto in0 = a.input(0);
  const auto in1 = a.input(1);
  const auto in2 = a.input(2);
  const auto out0 = a.output(0);
  switch (a.instruction().kernel) {
    case Kernel::embedding_forward:
      return [=, d = s.embedding(), tokens = a.input_as<std::int32_t>(0),
              y = s.columns(out0, s.output(0))](const StepContext&) { embedding_forward(d, tokens, in1, in2, y); };
    case Kernel::embedding_backward:
      return [d = s.embedding(),
              operands = EmbeddingBackwardOperands{.tokens = a.input_as<std::int32_t>(0),
                                                   .dy = s.columns(in1, s.input(1)),
                                                   .dtable = out0,
                                                   .dpositions = a.output(1)},
              add = EmbeddingAccumulate{a.accumulates(0), a.accumulates(1)},
              workspace = a.workspace()](const StepContext&) { embedding_backward(d, operands, add, workspace); };
    case Kernel::max_pool_forward:
      return [=, d = s.max_pool(), indices = a.output_as<std::uint8_t>(1)](const StepContext&) {
        max_pool_forward(d, in0, out0, indices);
      };
    case Kernel::max_pool_backward:
      return with_bias_gradient(a, s, [=, d = s.max_pool(), indices = a.input_as<std::uint8_t>(1)](const StepContext&) {
        max_pool_backward(d, in0, indices, out0);
      });
    case Kernel::average_pool_forward:
      return [=, d = s.average_pool()](const StepContext&) { average_pool_forward(d, in0, out0); };
    case Kernel::average_pool_backward:
      return [=, d = s.average_pool()](const StepContext&) { average_pool_backward(d, in0, out0); };
    case Kernel::class_token_forward:
      return [=, d = s.class_token()](const StepContext&) { class_token_forward(d, in0, in1, in2, out0); };
    case Kernel::class_token_backward:
      return [d = s.class_token(),
              operands =
                  ClassTokenBackwardOperands{.dy = in0, .dx = out0, .dtoken = a.output(1), .dpositions = a.output(2)},
              add = ClassTokenAccumulate{a.accumulates(1), a.accumulates(2)}](const StepContext&) {
        class_token_backward(d, operands, add);
      };
    case Kernel::first_row_forward:
      return [=, d = s.first_row()](const StepContext&) { first_row_forward(d, in0, out0); };
    case Kernel::first_row_backward:
      return [=, d = s.first_row()](const StepContext&) { first_row_backward(d, in0, out0); };
    case Kernel::cross_entropy: {
      const CrossEntropyDims d = s.cross_entropy();
      STRATA_INVARIANT(a.input(0) == a.output(1), "the gradient stands where the logits were");
      return [=, logits = a.output(1), targets = a.input_as<std::int32_t>(1), loss = a.output_as<float>(0),
              scale = s.real("scale")](const StepContext&) { cross_entropy_gradient(d, logits, targets, scale, loss); };
    }
    case Kernel::top_k: {
      const CrossEntropyDims d = s.cross_entropy();
      return [=, targets = a.input_as<std::int32_t>(1),
              outputs = TopKOutputs{a.output_as<float>(0), a.output_as<float>(1), a.output_as<float>(2)}](
                 const StepContext&) { top_k(d, in0, targets, outputs); };
    }
    default: throw InternalError("no such kernel");
  }
}

}  // namespace

BoundKernel bind_kernel(const Program& program, const Arguments& a, InputSource& inputs, std::uint64_t seed,
                        const Numerics& numerics) {
  const KernelDims shape(program, a.instruction());
  switch (a.instruction().kernel) {
    case Kernel::none: throw InternalError("a collective is not a kernel");
    case Kernel::load_tokens:
    case Kernel::load_images:
    case Kernel::load_targets: return bind_load(a, inputs);
    case Kernel::initialize: return bind_initialize(a, seed);
    case Kernel::sgd:
    case Kernel::sgd_momentum:
    case Kernel::adam: return bind_optimizer(a);
    case Kernel::quantize:
    case Kernel::dequantize: return bind_quantized(a, shape.quantized());
    case Kernel::permute:
    case Kernel::norm_partial:
    case Kernel::norm_apply:
    case Kernel::norm_backward_partial:
    case Kernel::norm_backward_apply:
    case Kernel::cross_entropy_partial:
    case Kernel::cross_entropy_apply: return bind_laid_out(a, shape);
    case Kernel::dropout_forward:
    case Kernel::dropout_backward: return bind_dropout(a, shape, seed);
    case Kernel::rotary_forward:
    case Kernel::rotary_backward:
    case Kernel::attention_forward:
    case Kernel::attention_backward: return bind_sequence(a, shape, seed);
    case Kernel::linear_forward:
    case Kernel::linear_backward_input:
    case Kernel::linear_backward_weight:
    case Kernel::convolution_forward:
    case Kernel::convolution_backward_input:
    case Kernel::convolution_backward_weight:
    case Kernel::layer_norm_forward:
    case Kernel::layer_norm_backward:
    case Kernel::rms_norm_forward:
    case Kernel::rms_norm_backward:
    case Kernel::batch_norm_forward:
    case Kernel::batch_norm_backward:
    case Kernel::batch_norm_inference:
    case Kernel::running_statistics: return bind_dense(a, shape, numerics);
    case Kernel::gelu_forward:
    case Kernel::gelu_backward:
    case Kernel::gelu_erf_forward:
    case Kernel::gelu_erf_backward:
    case Kernel::relu_forward:
    case Kernel::relu_backward:
    case Kernel::swiglu_forward:
    case Kernel::swiglu_backward:
    case Kernel::add:
    case Kernel::accumulate:
    case Kernel::copy:
    case Kernel::fill:
    case Kernel::sum_of_squares:
    case Kernel::clip_factor:
    case Kernel::sum_loss: return bind_elementwise(a, shape);
    case Kernel::embedding_forward:
    case Kernel::embedding_backward:
    case Kernel::max_pool_forward:
    case Kernel::max_pool_backward:
    case Kernel::average_pool_forward:
    case Kernel::average_pool_backward:
    case Kernel::class_token_forward:
    case Kernel::class_token_backward:
    case Kernel::first_row_forward:
    case Kernel::first_row_backward:
    case Kernel::cross_entropy:
    case Kernel::top_k: return bind_others(a, shape);
  }
  throw InternalError("no such kernel");
}

std::int64_t workspace_bytes(const Program& program, const Instruction& in, const Numerics& numerics) {
  const KernelDims s(program, in);
  switch (in.kernel) {
    case Kernel::load_images: {
      const Buffer& pixels = program.buffers[static_cast<std::size_t>(in.outputs[0].buffer)];
      return pixels.dtype == DType::f32 ? 0 : pixels.num_elements * size_of(DType::f32);
    }
    case Kernel::linear_forward: return linear_forward_workspace_bytes(s.linear(), s.accumulates(0));
    case Kernel::linear_backward_input: return linear_backward_input_workspace_bytes(s.linear(), s.accumulates(0));
    case Kernel::linear_backward_weight: return linear_backward_weight_workspace_bytes(s.linear(), s.accumulates(0));
    case Kernel::convolution_forward: return convolution_forward_workspace_bytes(convolution_dims(s, numerics));
    case Kernel::convolution_backward_input:
      return convolution_backward_input_workspace_bytes(convolution_dims(s, numerics));
    case Kernel::convolution_backward_weight:
      return convolution_backward_weight_workspace_bytes(convolution_dims(s, numerics), s.accumulates(0));
    case Kernel::layer_norm_backward: return layer_norm_backward_workspace_bytes(s.layer_norm());
    case Kernel::rms_norm_backward: return rms_norm_backward_workspace_bytes(s.rms_norm());
    case Kernel::batch_norm_forward:
    case Kernel::batch_norm_backward:
    case Kernel::batch_norm_inference: return batch_norm_workspace_bytes(s.batch_norm());
    case Kernel::norm_backward_partial: return norm_backward_partial_workspace_bytes(s.split_norm());
    case Kernel::embedding_backward: return embedding_backward_workspace_bytes(s.embedding());
    case Kernel::attention_forward: return attention_forward_workspace_bytes(s.attention());
    case Kernel::attention_backward: return attention_backward_workspace_bytes(s.attention());
    default: return 0;
  }
}

std::string_view convolution_method(const Program& program, const Instruction& instruction, const Numerics& numerics) {
  switch (instruction.kernel) {
    case Kernel::convolution_forward:
    case Kernel::convolution_backward_input:
    case Kernel::convolution_backward_weight:
      return is_by_winograd(convolution_dims(KernelDims(program, instruction), numerics)) ? "winograd" : "direct";
    default: return "";
  }
}

}  // namespace strata::cpu
