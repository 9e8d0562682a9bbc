/// @file
/// Convolution on oneDNN with NHWC activations and weights in the layout that oneDNN asks for. Measured on AVX-512 and
/// AMX, letting it choose the activations' layout too wins less than the two reorders cost, but for images of a few
/// pixels.

#include "exec/cpu/kernels/convolution.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "exec/cpu/kernels/column_sums.hpp"
#include "exec/cpu/kernels/dnnl_context.hpp"
#include "exec/cpu/kernels/winograd.hpp"
#include "exec/cpu/kernels/winograd_choice.hpp"

namespace strata::cpu {

namespace {

using dnnl::memory;
using Tag = memory::format_tag;

enum class Phase : std::uint8_t { forward, backward_input, backward_weight };

struct Layouts {
  memory::desc x;  // here and below: as the caller stores it
  memory::desc y;
  memory::desc weight;
  memory::desc weight_wanted;  // for oneDNN to choose
  memory::desc bias;
  memory::dims strides;
  memory::dims padding;
};

Layouts layouts(const ConvolutionDims& dims, DType weight_dtype) {
  const memory::dims weight{dims.out, dims.in, dims.kernel_h, dims.kernel_w};
  Layouts result;
  result.x = {{dims.images, dims.in, dims.height, dims.width}, dnnl_type(dims.dtype), Tag::nhwc};
  result.y = {{dims.images, dims.out, dims.out_height(), dims.out_width()}, dnnl_type(dims.dtype), Tag::nhwc};
  result.weight = {weight, dnnl_type(weight_dtype), Tag::ohwi};
  result.weight_wanted = {weight, dnnl_type(weight_dtype), Tag::any};
  if (dims.bias) {
    result.bias = {{dims.out}, dnnl_type(dims.dtype), Tag::a};
  }
  result.strides = {dims.stride, dims.stride};
  result.padding = {dims.padding, dims.padding};
  return result;
}

Layouts computable(Layouts stored) {
  for (memory::desc* layout : {&stored.x, &stored.y, &stored.weight, &stored.weight_wanted, &stored.bias}) {
    *layout = cpu::computable(*layout);
  }
  return stored;
}

struct Convolution {
  BoundPrimitive reorder_weight;  // to oneDNN's layout, or for backward_weight from it; empty where it is the caller's
  BoundPrimitive compute;
  std::int64_t weight_bytes = 0;  // of the reordered copy
};

/// The weight as an argument of what is being built: reordered first where it is not stored as wanted.
BoundPrimitive::Argument take_weight(Convolution& built, const memory::desc& stored, const memory::desc& wanted) {
  built.reorder_weight = make_reorder(stored, wanted);
  built.weight_bytes = static_cast<std::int64_t>(wanted.get_size());
  return {DNNL_ARG_WEIGHTS, built.reorder_weight ? wanted : stored, Access::read};
}

dnnl::convolution_forward::primitive_desc describe_forward(const ConvolutionDims& dims,
                                                           const dnnl::primitive_attr& attributes) {
  const Layouts shapes = computable(layouts(dims, dims.dtype));
  constexpr auto training = dnnl::prop_kind::forward_training;
  constexpr auto direct = dnnl::algorithm::convolution_direct;
  using Operation = dnnl::convolution_forward::desc;
  const Operation operation = dims.bias ? Operation(training, direct, shapes.x, shapes.weight_wanted, shapes.bias,
                                                    shapes.y, shapes.strides, shapes.padding, shapes.padding)
                                        : Operation(training, direct, shapes.x, shapes.weight_wanted, shapes.y,
                                                    shapes.strides, shapes.padding, shapes.padding);
  return {operation, attributes, dnnl_engine()};
}

Convolution build_forward(const ConvolutionDims& dims) {
  const Layouts stored = layouts(dims, dims.dtype);
  dnnl::primitive_attr attributes = user_scratchpad();
  if (dims.relu) {
    dnnl::post_ops relu;
    relu.append_eltwise(1.0F, dnnl::algorithm::eltwise_relu, 0.0F, 0.0F);
    attributes.set_post_ops(relu);
  }
  const auto description = describe_forward(dims, attributes);
  Convolution built;
  const BoundPrimitive::Argument x{DNNL_ARG_SRC, stored.x, Access::read};
  const BoundPrimitive::Argument weight = take_weight(built, stored.weight, description.weights_desc());
  const BoundPrimitive::Argument y{DNNL_ARG_DST, stored.y, Access::write};
  const dnnl::convolution_forward primitive(description);
  built.compute = dims.bias ? BoundPrimitive(primitive, {x, weight, y, {DNNL_ARG_BIAS, stored.bias, Access::read}},
                                             description.scratchpad_desc())
                            : BoundPrimitive(primitive, {x, weight, y}, description.scratchpad_desc());
  return built;
}

Convolution build_backward_input(const ConvolutionDims& dims) {
  const Layouts stored = layouts(dims, dims.dtype);
  const Layouts shapes = computable(stored);
  const auto hint = describe_forward(dims, user_scratchpad());
  const dnnl::convolution_backward_data::primitive_desc description(
      {dnnl::algorithm::convolution_direct, shapes.x, shapes.weight_wanted, shapes.y, shapes.strides, shapes.padding,
       shapes.padding},
      user_scratchpad(), dnnl_engine(), hint);
  Convolution built;
  const BoundPrimitive::Argument weight = take_weight(built, stored.weight, description.weights_desc());
  built.compute = BoundPrimitive(
      dnnl::convolution_backward_data(description),
      {{DNNL_ARG_DIFF_DST, stored.y, Access::read}, weight, {DNNL_ARG_DIFF_SRC, stored.x, Access::write}},
      description.scratchpad_desc());
  return built;
}

Convolution build_backward_weight(const ConvolutionDims& dims, bool accumulate) {
  const auto hint = describe_forward(dims, user_scratchpad());
  // A bf16 gradient is made in f32 too, so that adding to an old one rounds once.
  const Layouts made = layouts(dims, DType::f32);
  const Layouts shapes = computable(made);
  const dnnl::convolution_backward_weights::primitive_desc description(
      {dnnl::algorithm::convolution_direct, shapes.x, shapes.weight_wanted, shapes.y, shapes.strides, shapes.padding,
       shapes.padding},
      user_scratchpad(), dnnl_engine(), hint);
  Convolution built;
  const memory::desc gradient = layouts(dims, dims.gradient_dtype).weight;
  built.reorder_weight = make_reorder(description.diff_weights_desc(), gradient, accumulate);
  built.weight_bytes = static_cast<std::int64_t>(description.diff_weights_desc().get_size());
  built.compute = BoundPrimitive(
      dnnl::convolution_backward_weights(description),
      {{DNNL_ARG_DIFF_DST, made.y, Access::read},
       {DNNL_ARG_SRC, made.x, Access::read},
       {DNNL_ARG_DIFF_WEIGHTS, built.reorder_weight ? description.diff_weights_desc() : gradient, Access::write}},
      description.scratchpad_desc());
  return built;
}

Convolution& find(Phase phase, const ConvolutionDims& dims, bool accumulate) {
  STRATA_INVARIANT(
      dims.images > 0 && dims.in > 0 && dims.out > 0 && dims.stride > 0 && dims.padding >= 0 && dims.out_height() > 0 &&
          dims.out_width() > 0 && dims.kernel_h > 0 && dims.kernel_w > 0,
      fmt::format("convolution of {} x {}x{}x{} to {} channels, kernel {}x{}, stride {}, padding {}", dims.images,
                  dims.height, dims.width, dims.in, dims.out, dims.kernel_h, dims.kernel_w, dims.stride, dims.padding));
  STRATA_INVARIANT(
      dims.gradient_dtype == DType::f32 || (dims.gradient_dtype == DType::bf16 && dims.dtype == DType::bf16),
      "gradients are f32, or bf16 where activations are");
  thread_local PrimitiveCache<Convolution> cache;
  const PrimitiveKey key{static_cast<std::int64_t>(phase),
                         dims.images,
                         dims.height,
                         dims.width,
                         dims.in,
                         dims.out,
                         dims.kernel_h,
                         dims.kernel_w,
                         dims.stride,
                         dims.padding,
                         static_cast<std::int64_t>(dims.dtype),
                         static_cast<std::int64_t>(dims.gradient_dtype),
                         dims.bias,
                         dims.relu,
                         accumulate,
                         kernel_threads()};
  return cache.find_or_build(key, [&] {
    require_32_bits("convolve", {dims.images});
    return dnnl_build("convolve", [&] {
      switch (phase) {
        case Phase::forward: return build_forward(dims);
        case Phase::backward_input: return build_backward_input(dims);
        case Phase::backward_weight: return build_backward_weight(dims, accumulate);
      }
      throw InternalError("no such phase");
    });
  });
}

struct Buffers {
  std::byte* weight;  // null where the caller's layout is oneDNN's
  std::byte* scratchpad;
};
Buffers cut(WorkspaceCutter& cutter, const Convolution& convolution) {
  Buffers buffers{};
  const bool reorders = static_cast<bool>(convolution.reorder_weight);
  // oneDNN asks for more scratchpad than it writes: it goes below what is written to the last byte.
  buffers.scratchpad = cutter.take(
      std::max(convolution.compute.scratchpad_bytes(), reorders ? convolution.reorder_weight.scratchpad_bytes() : 0));
  buffers.weight = cutter.take(reorders ? convolution.weight_bytes : 0);
  return buffers;
}

std::int64_t workspace_bytes(const Convolution& convolution) {
  WorkspaceCutter cutter;
  cut(cutter, convolution);
  return cutter.taken_bytes();
}

/// The weight where oneDNN wants it: reordered into the workspace, or as it is.
const void* weight_for(Convolution& convolution, const void* weight, const Buffers& buffers) {
  if (!convolution.reorder_weight) {
    return weight;
  }
  convolution.reorder_weight.run({weight, buffers.weight}, buffers.scratchpad);
  return buffers.weight;
}

void direct_backward_weight(const ConvolutionDims& dims, const void* dy, const void* x, void* dweight, bool accumulate,
                            std::span<std::byte> workspace) {
  Convolution& convolution = find(Phase::backward_weight, dims, accumulate);
  WorkspaceCutter cutter(workspace);
  const Buffers buffers = cut(cutter, convolution);
  if (convolution.reorder_weight) {
    convolution.compute.run({dy, x, buffers.weight}, buffers.scratchpad);
    convolution.reorder_weight.run({buffers.weight, dweight}, buffers.scratchpad);
  } else {
    convolution.compute.run({dy, x, dweight}, buffers.scratchpad);
  }
}

}  // namespace

std::int64_t convolution_forward_workspace_bytes(const ConvolutionDims& dims) {
  if (is_by_winograd(dims)) return winograd_forward_workspace_bytes(dims);
  return workspace_bytes(find(Phase::forward, dims, false));
}

std::int64_t convolution_backward_input_workspace_bytes(const ConvolutionDims& dims) {
  if (is_by_winograd(dims)) return winograd_backward_input_workspace_bytes(dims);
  return workspace_bytes(find(Phase::backward_input, dims, false));
}

std::int64_t convolution_backward_weight_workspace_bytes(const ConvolutionDims& dims, bool accumulate) {
  if (is_by_winograd(dims)) return winograd_backward_weight_workspace_bytes(dims);
  return workspace_bytes(find(Phase::backward_weight, dims, accumulate));
}

void convolution_forward(const ConvolutionDims& dims, const void* x, const void* weight, const void* bias, void* y,
                         std::span<std::byte> workspace) {
  if (is_by_winograd(dims)) {
    winograd_forward(dims, x, weight, bias, y, workspace);
    return;
  }
  Convolution& convolution = find(Phase::forward, dims, false);
  WorkspaceCutter cutter(workspace);
  const Buffers buffers = cut(cutter, convolution);
  weight = weight_for(convolution, weight, buffers);
  if (dims.bias) {
    convolution.compute.run({x, weight, y, bias}, buffers.scratchpad);
  } else {
    convolution.compute.run({x, weight, y}, buffers.scratchpad);
  }
}

void convolution_backward_input(const ConvolutionDims& dims, const void* dy, const void* weight, void* dx,
                                std::span<std::byte> workspace) {
  if (is_by_winograd(dims)) {
    winograd_backward_input(dims, dy, weight, dx, workspace);
    return;
  }
  Convolution& convolution = find(Phase::backward_input, dims, false);
  WorkspaceCutter cutter(workspace);
  const Buffers buffers = cut(cutter, convolution);
  convolution.compute.run({dy, weight_for(convolution, weight, buffers), dx}, buffers.scratchpad);
}

void convolution_backward_weight(const ConvolutionDims& dims, const void* dy, const void* x, void* dweight, void* dbias,
                                 bool accumulate, std::span<std::byte> workspace) {
  if (is_by_winograd(dims)) {
    winograd_backward_weight(dims, dy, x, dweight, accumulate, workspace);
  } else {
    direct_backward_weight(dims, dy, x, dweight, accumulate, workspace);
  }
  if (dims.bias) {
    column_sums({.rows = dims.images * dims.out_height() * dims.out_width(),
                 .columns = dims.out,
                 .dtype = dims.dtype,
                 .sums_dtype = dims.gradient_dtype},
                dy, dbias, accumulate);
  }
}

}  // namespace strata::cpu
