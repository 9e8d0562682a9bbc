#include "exec/cuda/kernel_binding.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "base/console.hpp"
#include "base/error.hpp"
#include "base/random.hpp"
#include "exec/cuda/check.hpp"
#include "exec/cuda/convolution.hpp"
#include "exec/cuda/device_arena.hpp"
#include "exec/cuda/event.hpp"
#include "exec/cuda/fused_attention.hpp"
#include "exec/cuda/fused_convolution.hpp"
#include "exec/cuda/kernels/attention.hpp"
#include "exec/cuda/kernels/bias_relu.hpp"
#include "exec/cuda/kernels/class_token.hpp"
#include "exec/cuda/kernels/dropout_mask.hpp"
#include "exec/cuda/kernels/elementwise.hpp"
#include "exec/cuda/kernels/norm.hpp"
#include "exec/cuda/kernels/optimizer.hpp"
#include "exec/cuda/kernels/permute.hpp"
#include "exec/cuda/kernels/pooling.hpp"
#include "exec/cuda/kernels/quantize.hpp"
#include "exec/cuda/kernels/split_rows.hpp"
#include "exec/cuda/matmul.hpp"
#include "exec/cuda/product_parts.hpp"
#include "exec/device/attention_choice.hpp"
#include "exec/device/workspace.hpp"
#include "ir/model/model_graph.hpp"

namespace strata::cuda {
namespace {

/// The workspace, which must be as large as was planned.
/// @param numerics which attention's depends on.
std::span<std::byte> workspace_of(const Program& program, const Arguments& a, const Numerics& numerics = {}) {
  const std::span<std::byte> workspace = a.workspace();
  const std::int64_t needed = workspace_bytes(program, a.instruction(), numerics);
  STRATA_INVARIANT(static_cast<std::int64_t>(workspace.size()) >= needed,
                   fmt::format("{} needs {} bytes of workspace, got {}: planned for another backend?",
                               a.instruction().name, needed, workspace.size()));
  return workspace;
}
float* floats(std::span<std::byte> workspace) { return reinterpret_cast<float*>(workspace.data()); }

BoundKernel bind_initialize(const Arguments& a, std::uint64_t seed) {
  const RandomStream random{seed, stream_of(a.instruction().name)};
  const Buffer& buffer = a.output_buffer(0);
  const std::int64_t first = buffer.parameter_begin + a.instruction().outputs[0].begin;
  const auto low = static_cast<float>(a.real("a"));
  const auto high = static_cast<float>(a.real("b"));
  const std::int64_t n = a.output_elements(0);
  const auto y = a.output(0);
  const DType dtype = buffer.dtype;
  // Element i of the parameter has its value wherever it is held.
  const auto runs = [=, block = buffer.block](const auto& fill_run) {
    block.for_runs(first, n, [&](std::int64_t in_whole, std::int64_t at, std::int64_t count) {
      fill_run(y + at * size_of(dtype), count, static_cast<std::uint64_t>(in_whole));
    });
  };
  switch (static_cast<Initializer::Kind>(a.integer("distribution"))) {
    case Initializer::Kind::constant: return [=](cudaStream_t stream) { fill(dtype, y, n, low, stream); };
    case Initializer::Kind::normal:
      return [=](cudaStream_t stream) {
        runs([&](std::byte* part, std::int64_t count, std::uint64_t in_whole) {
          initialize_normal({.dtype = dtype, .y = part, .n = count, .random = random, .first_element = in_whole}, low,
                            high, stream);
        });
      };
    case Initializer::Kind::uniform:
      return [=](cudaStream_t stream) {
        runs([&](std::byte* part, std::int64_t count, std::uint64_t in_whole) {
          initialize_uniform({.dtype = dtype, .y = part, .n = count, .random = random, .first_element = in_whole}, low,
                             high, stream);
        });
      };
  }
  throw InternalError("no such distribution");
}

/// Of an optimizer's update, with the numbers that its settings give in each step.
ParameterSlice slice_of(const Arguments& a, StepValues& values) {
  const Kernel kernel = a.instruction().kernel;
  const int step = a.instruction().step;
  const int states = kernel == Kernel::adam ? 2 : kernel == Kernel::sgd_momentum ? 1 : 0;
  ParameterSlice slice{.n = a.output_elements(0),
                       .master = a.output_as<float>(0),
                       .gradient = a.input(0),
                       .gradient_dtype = a.input_dtype(0),
                       .gradient_factor = a.input_as<float>(1),
                       .compute = a.output(1 + states),
                       .first_state = states > 0 ? a.output_as<float>(1) : nullptr,
                       .second_state = states > 1 ? a.output_as<float>(2) : nullptr};
  if (kernel == Kernel::adam) {
    const AdamSettings settings{.beta1 = a.real("beta1"),
                                .beta2 = a.real("beta2"),
                                .epsilon = a.real("epsilon"),
                                .weight_decay = a.real("weight_decay"),
                                .decoupled = a.integer("decoupled") != 0};
    slice.factors = values.add<AdamFactors>(
        step, [=](const StepContext& c) { return adam_factors(settings, c.learning_rate, c.step + 1); });
  } else {
    const SgdSettings settings{.momentum = states == 1 ? a.real("momentum") : 0.0,
                               .weight_decay = a.real("weight_decay"),
                               .has_momentum = states == 1};
    slice.factors =
        values.add<SgdFactors>(step, [=](const StepContext& c) { return sgd_factors(settings, c.learning_rate); });
  }
  return slice;
}

/// Of the instruction's operator, in each step.
const RandomStream* random_of(const Arguments& a, const BindingContext& context) {
  const std::uint64_t operator_stream = stream_of(a.instruction().name);
  return context.step_values.add<RandomStream>(a.instruction().step, [=, seed = context.seed](const StepContext& c) {
    return random_stream(seed, operator_stream, c.step);
  });
}

/// cuBLASLt moves biases, their gradients and what GELU is applied to in vectors, and says nothing of those that begin
/// elsewhere.
bool is_aligned(const void* at) { return alignment_bytes(reinterpret_cast<std::uintptr_t>(at)) >= 16; }

/// A product through GELU or its gradient: in the product's epilogue, or, where cuBLASLt has no kernel for it, in a
/// pass of ours.
/// @param operands of the product alone.
BoundKernel bind_linear_with_gelu(const Arguments& a, const LinearDims& d, MatmulOperands operands,
                                  Libraries& libraries, std::span<std::byte> workspace) {
  const bool is_forward = a.instruction().kernel == Kernel::linear_forward;
  const auto bias = is_forward ? a.input(2) : nullptr;
  const auto before = is_forward ? a.output(1) : a.input(2);
  const auto y = a.output(0);
  MatmulOperands fused = operands;
  fused.activation = is_forward ? MatmulOperands::Activation::gelu : MatmulOperands::Activation::gelu_gradient;
  fused.bias = bias;
  fused.before = before;
  if (is_aligned(bias) && is_aligned(before) && operands.layout.ldd * size_of(d.dtype) % 16 == 0) {
    if (const auto product = Matmul::if_there(libraries, fused, workspace)) {
      return [product](cudaStream_t stream) { product->run(stream); };
    }
    auto& known = libraries.products_without_gelu();
    if (std::ranges::find(known, std::pair{is_forward, d}) == known.end()) {
      known.emplace_back(is_forward, d);
      say_error(
          "strata: warning: cuBLASLt has no kernel for {} a linear layer of {} to {} columns in {}: it takes a "
          "pass of its own\n",
          is_forward ? "GELU behind" : "the gradient of GELU before", d.in, d.out, to_string(d.dtype));
    }
  }
  const auto gelu_input = is_forward && before != nullptr ? before : y;
  operands.d = gelu_input;
  const auto product = std::make_shared<Matmul>(libraries, operands, workspace);
  if (!is_forward) {
    return [=, n = d.tokens * d.in](cudaStream_t stream) {
      product->run(stream);
      gelu_backward(d.dtype, y, before, y, n, stream);
    };
  }
  return [=](cudaStream_t stream) {
    product->run(stream);
    if (bias != nullptr) add_bias(d.dtype, gelu_input, bias, d.tokens, d.out, stream);
    gelu_forward(d.dtype, gelu_input, y, d.tokens * d.out, stream);
  };
}

/// A product in its parts (product_parts.hpp), one behind the other in the same workspace.
class Product {
 public:
  Product() = default;  ///< of nothing
  /// @throws Unsupported where cuBLASLt has no kernel.
  Product(Libraries& libraries, const MatmulOperands& whole, OutputsAre outputs, std::span<std::byte> workspace) {
    for (const MatmulOperands& part : product_parts(whole, outputs)) {
      parts_.push_back(std::make_shared<const Matmul>(libraries, part, workspace));
    }
  }
  static std::optional<Product> if_there(Libraries& libraries, const MatmulOperands& whole, OutputsAre outputs,
                                         std::span<std::byte> workspace) {
    try {
      return Product(libraries, whole, outputs, workspace);
    } catch (const Unsupported&) {
      return std::nullopt;
    }
  }
  void operator()(cudaStream_t stream) const {
    for (const auto& part : parts_) part->run(stream);
  }

 private:
  std::vector<std::shared_ptr<const Matmul>> parts_;
};

BoundKernel bind_linear(const Program& program, const Arguments& a, const KernelDims& dims, Libraries& libraries) {
  const LinearDims d = dims.linear();
  const std::span<std::byte> workspace = workspace_of(program, a);
  const auto for_product = workspace.first(static_cast<std::size_t>(matmul_workspace_bytes));
  MatmulOperands operands{.layout = {}, .dtype = d.dtype, .out_dtype = d.dtype, .d = a.output(0)};
  OutputsAre outputs = OutputsAre::m;
  switch (a.instruction().kernel) {
    case Kernel::linear_forward:
      operands.layout = linear_forward_layout(d);
      operands.a = a.input(1);
      operands.b = dims.columns(a.input(0), d.dtype);
      operands.accumulate = dims.accumulates(0);
      break;
    case Kernel::linear_backward_input:
      operands.layout = linear_backward_input_layout(d);
      outputs = OutputsAre::k;
      operands.a = a.input(1);
      operands.b = a.input(0);
      operands.d = dims.columns(a.output(0), d.dtype);
      operands.accumulate = dims.accumulates(0);
      break;
    case Kernel::linear_backward_weight:
      operands.layout = linear_backward_weight_layout(d);
      outputs = OutputsAre::n;
      operands.a = dims.columns(a.input(0), d.dtype);
      operands.b = a.input(1);
      operands.out_dtype = d.gradient_dtype;
      operands.accumulate = dims.accumulates(0);
      break;
    default: throw InternalError("not a linear kernel");
  }
  STRATA_INVARIANT(d.out_row == 0 || (!d.bias && !d.gelu), "rows of an output apart, with a pass over them");
  if (d.gelu) return bind_linear_with_gelu(a, d, operands, libraries, for_product);
  const bool adds_bias = a.instruction().kernel == Kernel::linear_forward && d.bias;
  const bool in_epilogue = adds_bias && is_aligned(a.input(2));
  if (in_epilogue) operands.bias = a.input(2);
  const bool sums_bias = a.instruction().kernel == Kernel::linear_backward_weight && d.bias;
  if (sums_bias && d.in > 0 && !dims.accumulates(1) && is_aligned(a.output(1))) {
    operands.bias_gradient = a.output(1);
    if (const auto product = Product::if_there(libraries, operands, outputs, for_product)) return *product;
    operands.bias_gradient = nullptr;
  }
  // A rank without inputs sums the gradient of its bias alone.
  const Product product = d.in > 0 ? Product(libraries, operands, outputs, for_product) : Product();
  if (adds_bias && !in_epilogue) {
    return [=, y = operands.d, bias = a.input(2)](cudaStream_t stream) {
      product(stream);
      add_bias(d.dtype, y, bias, d.tokens, d.out, stream);
    };
  }
  if (!sums_bias) return product;
  const ColumnSumsDims bias{.rows = d.tokens, .columns = d.out, .dtype = d.dtype, .sums_dtype = d.gradient_dtype};
  return [=, dy = a.input(1), dbias = a.output(1), add = dims.accumulates(1),
          partials = floats(workspace.subspan(for_product.size()))](cudaStream_t stream) {
    product(stream);
    column_sums(bias, dy, dbias, add, partials, stream);
  };
}

BoundKernel bind_convolution(const Program& program, const Arguments& a, const KernelDims& dims, Libraries& libraries) {
  using enum Convolution::Pass;
  const ConvolutionDims d = dims.convolution();
  const std::span<std::byte> workspace = workspace_of(program, a);
  const auto in0 = a.input(0);
  const auto in1 = a.input(1);
  const auto out0 = a.output(0);
  const std::int64_t rows = d.images * d.out_height() * d.out_width();
  if (a.instruction().kernel == Kernel::convolution_forward) {
    const ConvolutionAddresses addresses{.x = in0, .weight = in1, .bias = a.input(2), .y = out0};
    if (const auto fused = FusedConvolution::if_there(libraries, d, addresses, workspace)) {
      return [fused](cudaStream_t stream) { fused->run(stream); };
    }
    const auto call = std::make_shared<Convolution>(libraries, forward, d, workspace);
    return [=, bias = a.input(2)](cudaStream_t stream) {
      call->forward(in0, in1, out0, stream);
      if (d.bias && d.relu) {
        add_bias_and_relu(d.dtype, out0, bias, rows, d.out, stream);
      } else if (d.bias) {
        add_bias(d.dtype, out0, bias, rows, d.out, stream);
      } else if (d.relu) {
        relu_forward(d.dtype, out0, out0, rows * d.out, stream);
      }
    };
  }
  if (a.instruction().kernel == Kernel::convolution_backward_input) {
    const auto call = std::make_shared<Convolution>(libraries, backward_input, d, workspace);
    return [=](cudaStream_t stream) { call->backward_input(in0, in1, out0, stream); };
  }
  const auto call = std::make_shared<Convolution>(libraries, backward_weight, d, workspace);
  const std::int64_t n = d.out * d.kernel_h * d.kernel_w * d.in;
  std::byte* const gradient = workspace.data() + convolution_workspace_bytes(d);
  float* const partials = reinterpret_cast<float*>(gradient + n * size_of(DType::f32));
  const ColumnSumsDims bias{.rows = rows, .columns = d.out, .dtype = d.dtype, .sums_dtype = d.gradient_dtype};
  return [=, dbias = a.output(1), add = dims.accumulates_parameters(0, a.num_outputs())](cudaStream_t stream) {
    call->backward_weight(in1, in0, gradient, stream);
    (add ? accumulate(d.dtype, gradient, d.gradient_dtype, out0, n, stream)
         : cast(d.dtype, gradient, d.gradient_dtype, out0, n, stream));
    if (d.bias) column_sums(bias, in1, dbias, add, partials, stream);
  };
}

/// Of kernels that make the gradient behind a bias, and that of the bias where there is an output for it.
BoundKernel bind_relu_backward(const Program& program, const Arguments& a, const KernelDims& dims) {
  const auto dy = a.input(0);
  const auto y = a.input(1);
  const auto dx = a.output(0);
  if (a.num_outputs() == 1) {
    return [=, n = a.output_elements(0), dtype = a.output_dtype(0)](cudaStream_t stream) {
      relu_backward(dtype, dy, y, dx, n, stream);
    };
  }
  return [=, d = dims.bias_gradient(), dbias = a.output(1), add = a.accumulates(1),
          partials = floats(workspace_of(program, a))](cudaStream_t stream) {
    relu_backward_with_bias(d, dy, y, dx, dbias, add, partials, stream);
  };
}

BoundKernel bind_max_pool_backward(const Program& program, const Arguments& a, const KernelDims& dims) {
  const MaxPoolDims d = dims.max_pool();
  const MaxPoolBackwardOperands operands{
      .dy = a.input(0), .indices = a.input_as<std::uint8_t>(1), .dx = a.output(0), .dbias = a.output(1)};
  if (a.num_outputs() == 1) {
    return [=](cudaStream_t stream) { max_pool_backward(d, operands.dy, operands.indices, operands.dx, stream); };
  }
  return [=, dbias_dtype = a.output_dtype(1), add = a.accumulates(1), partials = floats(workspace_of(program, a))](
             cudaStream_t stream) { max_pool_backward_with_bias(d, operands, dbias_dtype, add, partials, stream); };
}

BoundKernel bind_norm(const Program& program, const Arguments& a, const KernelDims& dims) {
  const auto in0 = a.input(0);
  const auto in1 = a.input(1);
  const auto in2 = a.input(2);
  const auto out0 = a.output(0);
  const auto out1 = a.output(1);
  const auto out2 = a.output(2);
  const auto workspace = floats(workspace_of(program, a));
  const auto saved = a.input_as<float>(3);
  const auto statistics = a.output_as<float>(1);
  switch (a.instruction().kernel) {
    case Kernel::layer_norm_forward:
      return [=, d = dims.layer_norm(), added = AddedRows{a.input(3), out2}](cudaStream_t stream) {
        layer_norm_forward(d, in0, in1, in2, out0, statistics, stream, added);
      };
    case Kernel::layer_norm_backward:
      return
          [=, d = dims.layer_norm(),
           operands =
               LayerNormBackwardOperands{
                   .dy = in0, .x = in1, .weight = in2, .statistics = saved, .dx = out0, .dweight = out1, .dbias = out2},
           add = LayerNormAccumulate{a.accumulates(0), a.accumulates(1), a.accumulates(2)}](cudaStream_t stream) {
            layer_norm_backward(d, operands, add, workspace, stream);
          };
    case Kernel::rms_norm_forward:
      return [=, d = dims.rms_norm(), added = AddedRows{in2, out2}](cudaStream_t stream) {
        rms_norm_forward(d, in0, in1, out0, statistics, stream, added);
      };
    case Kernel::rms_norm_backward:
      return [=, d = dims.rms_norm(),
              operands =
                  RmsNormBackwardOperands{
                      .dy = in0, .x = in1, .weight = in2, .statistics = saved, .dx = out0, .dweight = out1},
              add = RmsNormAccumulate{a.accumulates(0), a.accumulates(1)}](cudaStream_t stream) {
        rms_norm_backward(d, operands, add, workspace, stream);
      };
    case Kernel::batch_norm_forward:
      return [=, d = dims.batch_norm(), operands = BatchNormOperands{.x = in0, .gamma = in1, .beta = in2, .y = out0}](
                 cudaStream_t stream) { batch_norm_forward(d, operands, statistics, workspace, stream); };
    case Kernel::batch_norm_backward:
      return [=, d = dims.batch_norm(),
              operands = BatchNormBackwardOperands{.dy = in0,
                                                   .x = in1,
                                                   .gamma = in2,
                                                   .mean = saved,
                                                   .inverse_deviation = saved + dims.integer("channels"),
                                                   .dx = out0,
                                                   .dgamma = out1,
                                                   .dbeta = out2},
              parameters = dims.accumulates_parameters(1, a.num_outputs())](cudaStream_t stream) {
        batch_norm_backward(d, operands, parameters, workspace, stream);
      };
    case Kernel::batch_norm_inference:
      return [=, d = dims.batch_norm(), operands = BatchNormOperands{.x = in0, .gamma = in1, .beta = in2, .y = out0},
              running = RunningStatistics{a.input_as<float>(3), a.input_as<float>(4)}](cudaStream_t stream) {
        batch_norm_inference(d, operands, running, stream);
      };
    case Kernel::running_statistics:
      return [d = dims.batch_norm(), batch = a.input_as<float>(0), decay = dims.real("decay"),
              weight = dims.real("weight"), running = RunningStatistics{a.output_as<float>(0), a.output_as<float>(1)}](
                 cudaStream_t stream) { update_running_statistics(d, batch, decay, weight, running, stream); };
    default: throw InternalError("not a norm");
  }
}

BoundKernel bind_elementwise(const Program& program, const Arguments& a) {
  const auto in0 = a.input(0);
  const auto in1 = a.input(1);
  const auto out0 = a.output(0);
  const std::int64_t n = a.output_elements(0);
  const DType dtype = a.output_dtype(0);
  const auto partials = reinterpret_cast<double*>(workspace_of(program, a).data());
  switch (a.instruction().kernel) {
    case Kernel::gelu_forward: return [=](cudaStream_t stream) { gelu_forward(dtype, in0, out0, n, stream); };
    case Kernel::gelu_backward: return [=](cudaStream_t stream) { gelu_backward(dtype, in0, in1, out0, n, stream); };
    case Kernel::gelu_erf_forward: return [=](cudaStream_t stream) { gelu_erf_forward(dtype, in0, out0, n, stream); };
    case Kernel::gelu_erf_backward:
      return [=](cudaStream_t stream) { gelu_erf_backward(dtype, in0, in1, out0, n, stream); };
    case Kernel::relu_forward: return [=](cudaStream_t stream) { relu_forward(dtype, in0, out0, n, stream); };
    case Kernel::swiglu_forward:
      return [=, rows = a.integer("rows"), width = a.integer("width")](cudaStream_t stream) {
        swiglu_forward(dtype, in0, out0, rows, width, stream);
      };
    case Kernel::swiglu_backward:
      return [=, rows = a.integer("rows"), width = a.integer("width")](cudaStream_t stream) {
        swiglu_backward(dtype, in0, in1, out0, rows, width, stream);
      };
    case Kernel::add: return [=](cudaStream_t stream) { add(dtype, in0, in1, out0, n, stream); };
    case Kernel::accumulate:
      return [=, from = a.input_dtype(0)](cudaStream_t stream) { accumulate(from, in0, dtype, out0, n, stream); };
    case Kernel::copy:
      return [=, from = a.input_dtype(0)](cudaStream_t stream) { cast(from, in0, dtype, out0, n, stream); };
    case Kernel::fill:
      return [=, value = static_cast<float>(a.real("value"))](cudaStream_t stream) {
        fill(dtype, out0, n, value, stream);
      };
    case Kernel::sum_of_squares:
      return [=, from = a.input_dtype(0), elements = a.integer("elements"), sum = a.output_as<float>(0),
              adds = a.accumulates(0)](cudaStream_t stream) {
        sum_of_squares(from, in0, elements, sum, adds, partials, stream);
      };
    case Kernel::sum_loss:
      return [=, x = a.input_as<float>(0), elements = a.integer("elements"),
              scale = static_cast<float>(a.real("scale")), total = a.output_as<float>(0), adds = a.accumulates(0)](
                 cudaStream_t stream) { sum_of_loss(x, elements, scale, total, adds, partials, stream); };
    case Kernel::clip_factor:
      return [sum = a.input_as<float>(0), factor = a.output_as<float>(0), norm = a.output_as<float>(1),
              clip = static_cast<float>(a.real("clip_norm"))](cudaStream_t stream) {
        clip_factor(sum, clip, factor, norm, stream);
      };
    default: throw InternalError("not an elementwise kernel");
  }
}

BoundKernel bind_dropout(const Arguments& a, const KernelDims& dims, const BindingContext& context) {
  const auto x = a.input(0);
  const auto y = a.output(0);
  const Dropout settings{.probability = static_cast<float>(a.real("probability")),
                         .random = random_of(a, context),
                         .first_element = static_cast<std::uint64_t>(a.integer("first_element"))};
  const PermuteDims d = dims.permute();
  if (d.num_levels > 0) {
    return [=](cudaStream_t stream) { dropout_of_runs(d, x, y, settings, stream); };
  }
  return [=](cudaStream_t stream) { dropout(d.dtype, x, y, d.elements, settings, stream); };
}

BoundKernel bind_quantized(const Arguments& a, const QuantizedDims& d) {
  if (a.instruction().kernel == Kernel::quantize) {
    return [=, nodes = a.integer("nodes"), x = a.input(0), packed = a.output_as<std::uint8_t>(0)](cudaStream_t stream) {
      quantize(d, nodes, x, packed, stream);
    };
  }
  return [=, pieces = a.integer("pieces"), packed = a.input_as<std::uint8_t>(0), y = a.output(0),
          adds = a.accumulates(0)](cudaStream_t stream) { dequantize(d, pieces, packed, y, adds, stream); };
}

/// What tensor layouts bring with them.
BoundKernel bind_laid_out(const Program& program, const Arguments& a, const KernelDims& dims) {
  const auto in0 = a.input(0);
  const auto in1 = a.input(1);
  const auto in2 = a.input(2);
  const auto in3 = a.input(3);
  const auto out0 = a.output(0);
  switch (a.instruction().kernel) {
    case Kernel::permute: return [=, d = dims.permute()](cudaStream_t stream) { permute(d, in0, out0, stream); };
    case Kernel::norm_partial:
      return [=, d = dims.split_norm(), partial = a.output_as<float>(0)](cudaStream_t stream) {
        norm_partial(d, in0, partial, stream);
      };
    case Kernel::norm_apply:
      return [d = dims.split_norm(), operands = NormApplyOperands{.x = in0,
                                                                  .all = a.input_as<float>(1),
                                                                  .weight = in2,
                                                                  .bias = in3,
                                                                  .y = out0,
                                                                  .statistics = a.output_as<float>(1)}](
                 cudaStream_t stream) { norm_apply(d, operands, stream); };
    case Kernel::norm_backward_partial:
      return [d = dims.split_norm(),
              operands = NormBackwardPartialOperands{.dy = in0,
                                                     .x = in1,
                                                     .weight = in2,
                                                     .statistics = a.input_as<float>(3),
                                                     .partial = a.output_as<float>(0),
                                                     .dweight = a.output(1),
                                                     .dbias = a.output(2)},
              adds = dims.accumulates_parameters(1, a.num_outputs()), workspace = floats(workspace_of(program, a))](
                 cudaStream_t stream) { norm_backward_partial(d, operands, adds, workspace, stream); };
    case Kernel::norm_backward_apply:
      return [d = dims.split_norm(),
              operands = NormBackwardApplyOperands{.dy = in0,
                                                   .x = in1,
                                                   .weight = in2,
                                                   .statistics = a.input_as<float>(3),
                                                   .all = a.input_as<float>(4),
                                                   .dx = out0},
              adds = a.accumulates(0)](cudaStream_t stream) { norm_backward_apply(d, operands, adds, stream); };
    case Kernel::cross_entropy_partial:
      return [=, d = dims.split_cross_entropy(), targets = a.input_as<std::int32_t>(1),
              partial = a.output_as<float>(0)](cudaStream_t stream) {
        cross_entropy_partial(d, in0, targets, partial, stream);
      };
    case Kernel::cross_entropy_apply:
      STRATA_INVARIANT(a.input(0) == a.output(1), "the gradient stands where the logits were");
      return [=, d = dims.split_cross_entropy(), logits = a.output(1), targets = a.input_as<std::int32_t>(1),
              all = a.input_as<float>(2), loss = a.output_as<float>(0), scale = dims.real("scale")](
                 cudaStream_t stream) { cross_entropy_apply(d, logits, targets, all, scale, loss, stream); };
    default: throw InternalError("not a kernel of tensor layouts");
  }
}

/// cuDNN's kernels.
BoundKernel bind_fused_attention(const Program& program, const Arguments& a, const AttentionDims& d,
                                 const BindingContext& context) {
  Libraries& libraries = context.libraries;
  const bool forward = a.instruction().kernel == Kernel::attention_forward;
  const AttentionAddresses addresses =
      forward ? AttentionAddresses{.qkv = a.input(0), .y = a.output(0), .log_sum_exp = a.output_as<float>(1)}
              : AttentionAddresses{.qkv = a.input(1),
                                   .y = a.input(2),
                                   .log_sum_exp = a.input_as<float>(3),
                                   .dy = a.input(0),
                                   .dqkv = a.output(0)};
  const std::span<std::byte> workspace = workspace_of(program, a, libraries.numerics());
  const auto call = std::make_shared<FusedAttention>(
      libraries, forward ? AttentionPass::forward : AttentionPass::backward, d, addresses, workspace);
  if (d.dropout_probability == 0.0F) {
    return [=](cudaStream_t stream) { call->run(stream); };
  }
  // Backward forms the mask again: kept, it would take as much memory as the scores of all layers.
  return [=, mask = workspace.data(), random = random_of(a, context)](cudaStream_t stream) {
    attention_dropout_mask(d, mask, random, stream);
    call->run(stream);
  };
}

BoundKernel bind_attention(const Program& program, const Arguments& a, const AttentionDims& d,
                           const BindingContext& context) {
  const Numerics& numerics = context.libraries.numerics();
  if (uses_cudnn_attention(d, numerics)) return bind_fused_attention(program, a, d, context);
  const auto in0 = a.input(0);
  const auto out0 = a.output(0);
  const auto random = random_of(a, context);
  if (a.instruction().kernel == Kernel::attention_forward) {
    return [=, statistics = a.output_as<float>(1)](cudaStream_t stream) {
      attention_forward(d, in0, out0, statistics, random, stream);
    };
  }
  const AttentionBackwardOperands operands{
      .dy = in0, .qkv = a.input(1), .y = a.input(2), .log_sum_exp = a.input_as<float>(3), .dqkv = out0};
  return [=, workspace = floats(workspace_of(program, a, numerics))](cudaStream_t stream) {
    attention_backward(d, operands, random, workspace, stream);
  };
}

/// Sines and cosines in double take a GPU longer than all else of the kernel: they are formed once.
std::shared_ptr<const DeviceArena> rotary_angles_of(const RotaryDims& d, Libraries& libraries) {
  std::shared_ptr<const DeviceArena>& table = libraries.rotary_angles()[{d.seq, d.head_dim, d.theta, d.first_position}];
  if (table) return table;
  table = std::make_shared<const DeviceArena>(d.seq * d.head_dim * size_of(DType::f32), ArenaMemory::device);
  const Stream stream;
  rotary_angles(d, reinterpret_cast<float*>(table->data()), stream.get());
  stream.synchronize();
  return table;
}

BoundKernel bind_rotary(const Arguments& a, const KernelDims& dims, Libraries& libraries) {
  const float direction = a.instruction().kernel == Kernel::rotary_forward ? 1.0F : -1.0F;
  const RotaryDims d = dims.rotary();
  return [=, table = rotary_angles_of(d, libraries), in0 = a.input(0), out0 = a.output(0)](cudaStream_t stream) {
    rotary(d, reinterpret_cast<const float*>(table->data()), in0, out0, direction, stream);
  };
}

BoundKernel bind_others(const Program& program, const Arguments& a, const KernelDims& dims,
                        const BindingContext& context) {
  const auto in0 = a.input(0);
  const auto in1 = a.input(1);
  const auto in2 = a.input(2);
  const auto out0 = a.output(0);
  const auto out1 = a.output(1);
  const auto out_of_range = context.out_of_range;
  switch (a.instruction().kernel) {
    case Kernel::embedding_forward:
      return [=, d = dims.embedding(), tokens = a.input_as<std::int32_t>(0), y = dims.columns(out0, dims.output(0))](
                 cudaStream_t stream) { embedding_forward(d, tokens, in1, in2, y, out_of_range, stream); };
    case Kernel::embedding_backward:
      return [d = dims.embedding(),
              operands = EmbeddingBackwardOperands{.tokens = a.input_as<std::int32_t>(0),
                                                   .dy = dims.columns(in1, dims.input(1)),
                                                   .dtable = out0,
                                                   .dpositions = out1},
              add = EmbeddingAccumulate{a.accumulates(0), a.accumulates(1)},
              order = reinterpret_cast<std::uint64_t*>(workspace_of(program, a).data())](cudaStream_t stream) {
        embedding_backward(d, operands, add, order, stream);
      };
    case Kernel::max_pool_forward:
      return [=, d = dims.max_pool(), indices = a.output_as<std::uint8_t>(1)](cudaStream_t stream) {
        max_pool_forward(d, in0, out0, indices, stream);
      };
    case Kernel::max_pool_backward: return bind_max_pool_backward(program, a, dims);
    case Kernel::average_pool_forward:
      return [=, d = dims.average_pool()](cudaStream_t stream) { average_pool_forward(d, in0, out0, stream); };
    case Kernel::average_pool_backward:
      return [=, d = dims.average_pool()](cudaStream_t stream) { average_pool_backward(d, in0, out0, stream); };
    case Kernel::class_token_forward:
      return [=, d = dims.class_token()](cudaStream_t stream) { class_token_forward(d, in0, in1, in2, out0, stream); };
    case Kernel::class_token_backward:
      return [d = dims.class_token(),
              operands = ClassTokenBackwardOperands{.dy = in0, .dx = out0, .dtoken = out1, .dpositions = a.output(2)},
              add = ClassTokenAccumulate{a.accumulates(1), a.accumulates(2)}](cudaStream_t stream) {
        class_token_backward(d, operands, add, stream);
      };
    case Kernel::first_row_forward:
      return [=, d = dims.first_row()](cudaStream_t stream) { first_row_forward(d, in0, out0, stream); };
    case Kernel::first_row_backward:
      return [=, d = dims.first_row()](cudaStream_t stream) { first_row_backward(d, in0, out0, stream); };
    case Kernel::cross_entropy: {
      const CrossEntropyDims d = dims.cross_entropy();
      STRATA_INVARIANT(a.input(0) == a.output(1), "the gradient stands where the logits were");
      return [=, targets = a.input_as<std::int32_t>(1), loss = a.output_as<float>(0), scale = dims.real("scale")](
                 cudaStream_t stream) { cross_entropy_gradient(d, out1, targets, scale, loss, out_of_range, stream); };
    }
    case Kernel::top_k: {
      const CrossEntropyDims d = dims.cross_entropy();
      return [=, targets = a.input_as<std::int32_t>(1),
              outputs = TopKOutputs{a.output_as<float>(0), a.output_as<float>(1), a.output_as<float>(2)}](
                 cudaStream_t stream) { top_k(d, in0, targets, outputs, out_of_range, stream); };
    }
    default: throw InternalError("no such kernel");
  }
}

}  // namespace

BoundKernel bind_kernel(const Program& program, const Arguments& a, const BindingContext& context) {
  const KernelDims dims(program, a.instruction());
  switch (a.instruction().kernel) {
    case Kernel::none: throw InternalError("a collective is not a kernel");
    case Kernel::quantize:
    case Kernel::dequantize: return bind_quantized(a, dims.quantized());
    case Kernel::permute:
    case Kernel::norm_partial:
    case Kernel::norm_apply:
    case Kernel::norm_backward_partial:
    case Kernel::norm_backward_apply:
    case Kernel::cross_entropy_partial:
    case Kernel::cross_entropy_apply: return bind_laid_out(program, a, dims);
    case Kernel::load_tokens:
    case Kernel::load_images:
    case Kernel::load_targets: {
      auto load = std::make_shared<InputLoad>(a, context.inputs, program.steps_per_body, context.step_values);
      return {[load](cudaStream_t stream) { load->queue(stream); }, load};
    }
    case Kernel::initialize: return bind_initialize(a, context.seed);
    case Kernel::sgd:
    case Kernel::sgd_momentum:
    case Kernel::adam: return bind_updates(std::span(&a, 1), context.step_values);
    case Kernel::dropout_forward:
    case Kernel::dropout_backward: return bind_dropout(a, dims, context);
    case Kernel::rotary_forward:
    case Kernel::rotary_backward: return bind_rotary(a, dims, context.libraries);
    case Kernel::attention_forward:
    case Kernel::attention_backward: return bind_attention(program, a, dims.attention(), context);
    case Kernel::linear_forward:
    case Kernel::linear_backward_input:
    case Kernel::linear_backward_weight: return bind_linear(program, a, dims, context.libraries);
    case Kernel::convolution_forward:
    case Kernel::convolution_backward_input:
    case Kernel::convolution_backward_weight: return bind_convolution(program, a, dims, context.libraries);
    case Kernel::layer_norm_forward:
    case Kernel::layer_norm_backward:
    case Kernel::rms_norm_forward:
    case Kernel::rms_norm_backward:
    case Kernel::batch_norm_forward:
    case Kernel::batch_norm_backward:
    case Kernel::batch_norm_inference:
    case Kernel::running_statistics: return bind_norm(program, a, dims);
    case Kernel::gelu_forward:
    case Kernel::gelu_backward:
    case Kernel::gelu_erf_forward:
    case Kernel::gelu_erf_backward:
    case Kernel::relu_forward:
    case Kernel::swiglu_forward:
    case Kernel::swiglu_backward:
    case Kernel::add:
    case Kernel::accumulate:
    case Kernel::copy:
    case Kernel::fill:
    case Kernel::sum_of_squares:
    case Kernel::clip_factor:
    case Kernel::sum_loss: return bind_elementwise(program, a);
    case Kernel::relu_backward: return bind_relu_backward(program, a, dims);
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
    case Kernel::top_k: return bind_others(program, a, dims, context);
  }
  throw InternalError("no such kernel");
}

bool share_launch(const Program& program, const Instruction& a, const Instruction& b) {
  const auto gradient_dtype = [&](const Instruction& in) {
    return program.buffers[static_cast<std::size_t>(in.inputs.front().buffer)].dtype;
  };
  const bool is_update = a.kernel == Kernel::adam || a.kernel == Kernel::sgd || a.kernel == Kernel::sgd_momentum;
  return is_update && a.kernel == b.kernel && a.step == b.step && gradient_dtype(a) == gradient_dtype(b);
}

BoundKernel bind_updates(std::span<const Arguments> updates, StepValues& values) {
  std::vector<ParameterSlice> slices;
  for (const Arguments& update : updates) slices.push_back(slice_of(update, values));
  if (updates.front().instruction().kernel == Kernel::adam) {
    return [=](cudaStream_t stream) { adam_update(slices, stream); };
  }
  return [=](cudaStream_t stream) { sgd_update(slices, stream); };
}

}  // namespace strata::cuda
