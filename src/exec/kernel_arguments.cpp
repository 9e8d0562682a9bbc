#include "exec/kernel_arguments.hpp"

#include <fmt/core.h>

#include <string>

#include "base/error.hpp"

namespace strata {

std::span<std::byte> Arguments::workspace() const {
  if (instruction_.workspace < 0) {
    return {};
  }
  const Buffer& b = program_.buffers[static_cast<std::size_t>(instruction_.workspace)];
  return {arena_ + b.offset_bytes, static_cast<std::size_t>(b.size_bytes())};
}

LinearDims KernelDims::linear() const {
  const bool weight_gradient = in_.kernel == Kernel::linear_backward_weight;
  const std::size_t optional = weight_gradient ? in_.outputs.size() : in_.inputs.size();
  return {.tokens = integer("rows"),
          .in = integer("in"),
          .out = integer("out"),
          .row = row(),
          .out_row = in_.attributes.integer_or("ld", 0),
          .dtype = input(0),
          .gradient_dtype = weight_gradient ? output(0) : input(0),
          .bias = in_.kernel == Kernel::linear_forward ? optional == 3 : weight_gradient && optional == 2,
          .gelu = in_.attributes.integer_or("gelu", 0) != 0};
}

ConvolutionDims KernelDims::convolution() const {
  const bool weight_gradient = in_.kernel == Kernel::convolution_backward_weight;
  return {.images = integer("samples"),
          .height = integer("height"),
          .width = integer("width"),
          .in = integer("in"),
          .out = integer("out"),
          .kernel_h = integer("kernel"),
          .kernel_w = integer("kernel"),
          .stride = integer("stride"),
          .padding = integer("padding"),
          .dtype = input(0),
          .gradient_dtype = weight_gradient ? output(0) : input(0),
          .bias = weight_gradient ? in_.outputs.size() == 2
                                  : in_.kernel == Kernel::convolution_forward && in_.inputs.size() == 3,
          .relu = in_.attributes.integer_or("relu", 0) != 0};
}

LayerNormDims KernelDims::layer_norm() const {
  return {.rows = integer("rows"),
          .width = integer("width"),
          .dtype = input(0),
          .gradient_dtype = in_.kernel == Kernel::layer_norm_backward ? output(1) : DType::f32,
          .epsilon = real("epsilon")};
}

RmsNormDims KernelDims::rms_norm() const {
  return {.rows = integer("rows"),
          .width = integer("width"),
          .dtype = input(0),
          .gradient_dtype = in_.kernel == Kernel::rms_norm_backward ? output(1) : DType::f32,
          .epsilon = real("epsilon")};
}

BatchNormDims KernelDims::batch_norm() const {
  const bool backward = in_.kernel == Kernel::batch_norm_backward;
  const bool has_parameters = in_.kernel != Kernel::running_statistics;
  return {.rows = integer("rows"),
          .channels = integer("channels"),
          .dtype = input(0),
          .parameter_dtype = has_parameters ? input(backward ? 2 : 1) : DType::f32,
          .gradient_dtype = backward ? output(1) : DType::f32,
          .epsilon = real("epsilon")};
}

EmbeddingDims KernelDims::embedding() const {
  const bool backward = in_.kernel == Kernel::embedding_backward;
  const bool positions = backward ? in_.outputs.size() == 2 : in_.inputs.size() == 3;
  const std::int64_t elements = !positions ? 0 : backward ? in_.outputs[1].num_elements : in_.inputs[2].num_elements;
  return {.rows = integer("rows"),
          .sequence = integer("sequence"),
          .width = integer("width"),
          .row = row(),
          .vocabulary = integer("vocabulary"),
          .first_token = in_.attributes.integer_or("first_token", 0),
          .table_rows = in_.attributes.integer_or("table_rows", -1),
          .num_positions = elements / integer("width"),
          .dtype = input(1),
          .gradient_dtype = backward ? output(0) : DType::f32};
}

MaxPoolDims KernelDims::max_pool() const {
  return {.images = integer("samples"),
          .height = integer("height"),
          .width = integer("width"),
          .channels = integer("channels"),
          .kernel = integer("kernel"),
          .stride = integer("stride"),
          .padding = integer("padding"),
          .dtype = input(0),
          .relu = in_.attributes.integer_or("relu", 0) != 0};
}

ColumnSumsDims KernelDims::bias_gradient() const {
  const std::int64_t channels = integer("channels");
  return {
      .rows = in_.outputs[0].num_elements / channels, .columns = channels, .dtype = output(0), .sums_dtype = output(1)};
}

AveragePoolDims KernelDims::average_pool() const {
  return {.images = integer("samples"),
          .positions = integer("height") * integer("width"),
          .channels = integer("channels"),
          .dtype = input(0)};
}

ClassTokenDims KernelDims::class_token() const {
  return {.images = integer("samples"),
          .positions = integer("height") * integer("width"),
          .channels = integer("channels"),
          .dtype = input(0),
          .gradient_dtype = in_.kernel == Kernel::class_token_backward ? output(1) : DType::f32};
}

FirstRowDims KernelDims::first_row() const {
  return {.samples = integer("samples"), .sequence = integer("sequence"), .width = integer("width"), .dtype = input(0)};
}

AttentionDims KernelDims::attention() const {
  return {.batch = integer("samples"),
          .seq = integer("sequence"),
          .num_heads = integer("heads"),
          .num_kv_heads = integer("kv_heads"),
          .head_dim = integer("head_dim"),
          .dtype = input(0),
          .causal = integer("causal") != 0,
          .dropout_probability = real("dropout"),
          .first_sample = integer("first_sample"),
          .first_head = in_.attributes.integer_or("first_head", 0),
          .total_heads = in_.attributes.integer_or("total_heads", 0)};
}

RotaryDims KernelDims::rotary() const {
  return {.batch = integer("samples"),
          .seq = integer("sequence"),
          .num_heads = integer("heads") + integer("kv_heads"),
          .num_copied_heads = integer("kv_heads"),
          .head_dim = integer("head_dim"),
          .dtype = input(0),
          .theta = in_.attributes.real("theta")};
}

CrossEntropyDims KernelDims::cross_entropy() const {
  return {.rows = integer("rows"),
          .classes = integer("classes"),
          .row_stride = in_.attributes.integer_or("ld", 0),
          .dtype = input(0)};
}

PermuteDims KernelDims::permute() const {
  PermuteDims d = runs(in_.attributes.integer_or("first", 0), integer("elements"));
  d.scatters = in_.attributes.integer_or("scatters", 0) != 0;
  return d;
}

PermuteDims KernelDims::runs(std::int64_t first, std::int64_t elements) const {
  PermuteDims d{
      .elements = elements, .first = first, .run = in_.attributes.integer_or("run", elements), .dtype = input(0)};
  for (; d.num_levels < PermuteDims::most_levels; ++d.num_levels) {
    const std::string size = fmt::format("size{}", d.num_levels);
    if (!in_.attributes.has(size)) break;
    d.sizes[d.num_levels] = integer(size);
    d.strides[d.num_levels] = integer(fmt::format("stride{}", d.num_levels));
    d.periods[d.num_levels] = in_.attributes.integer_or(fmt::format("period{}", d.num_levels), 0);
  }
  // Each is asked for at every run.
  for (int l = 0; l < d.num_levels; ++l) d.periods[l] = d.period(l);
  return d;
}

SplitNormDims KernelDims::split_norm() const {
  const bool has_gradient = in_.kernel == Kernel::norm_backward_partial;
  return {.rows = integer("rows"),
          .width = integer("width"),
          .parts = in_.attributes.integer_or("parts", 1),
          .features = in_.attributes.integer_or("features", 0),
          .rms = integer("rms") != 0,
          .dtype = input(0),
          .gradient_dtype = has_gradient ? output(1) : DType::f32,
          .epsilon = static_cast<float>(in_.attributes.real_or("epsilon", 0.0))};
}

SplitCrossEntropyDims KernelDims::split_cross_entropy() const {
  return {.rows = integer("rows"),
          .classes = integer("classes"),
          .held = runs(integer("first_class"), integer("classes")),
          .parts = in_.attributes.integer_or("parts", 1),
          .dtype = input(0)};
}

QuantizedDims KernelDims::quantized() const {
  return {.elements = integer("elements"),
          .chunk = integer("chunk"),
          .chunks = integer("chunks"),
          .block = integer("block"),
          .bits = static_cast<int>(integer("bits")),
          .dtype = in_.kernel == Kernel::quantize ? input(0) : output(0)};
}

bool KernelDims::accumulates_parameters(int first_output, int num_outputs) const {
  for (int i = first_output; i < num_outputs; ++i) {
    STRATA_INVARIANT(accumulates(i) == accumulates(first_output), in_.name + ": weight and bias accumulate together");
  }
  return accumulates(first_output);
}

}  // namespace strata
