/// @file
/// The linear layer. f32 runs on oneDNN: forward on the weight as stored, gradients with the right-hand operand packed
/// first into the layout that oneDNN asks for, which costs O(elements) and wins up to a factor of two where rows are a
/// power of two apart; where an operand is stored transposed, some by its sgemm, which reads such operands faster. bf16
/// runs on amx_gemm where the processor has AMX, else on oneDNN's matmul in the same way (in f32 copies where it must,
/// see f32_copy.hpp).

#include "exec/cpu/kernels/linear.hpp"

#include <fmt/format.h>

#include "base/error.hpp"
#include "exec/cpu/kernels/amx_gemm.hpp"
#include "exec/cpu/kernels/column_sums.hpp"
#include "exec/cpu/kernels/dnnl_context.hpp"

namespace strata::cpu {

namespace {

using dnnl::memory;

std::int64_t row_of(const LinearDims& dims) { return dims.row == 0 ? dims.in : dims.row; }
std::int64_t row_of_output(const LinearDims& dims) { return dims.out_row == 0 ? dims.out : dims.out_row; }

/// C[m,n] (+)= op(A)·op(B) (+ bias): the three products of the layer in one form.
AmxGemmDims forward_product(const LinearDims& dims, bool accumulate) {
  return {.m = dims.tokens,
          .n = dims.out,
          .k = dims.in,
          .transpose_b = true,
          .lda = row_of(dims),
          .ldb = dims.in,
          .ldc = row_of_output(dims),
          .out_dtype = dims.dtype,
          .accumulate = accumulate,
          .bias = dims.bias};
}
AmxGemmDims backward_input_product(const LinearDims& dims, bool accumulate) {
  return {.m = dims.tokens,
          .n = dims.in,
          .k = dims.out,
          .lda = row_of_output(dims),
          .ldb = dims.in,
          .ldc = row_of(dims),
          .out_dtype = dims.dtype,
          .accumulate = accumulate};
}
AmxGemmDims backward_weight_product(const LinearDims& dims, bool accumulate) {
  return {.m = dims.out,
          .n = dims.in,
          .k = dims.tokens,
          .transpose_a = true,
          .lda = row_of_output(dims),
          .ldb = row_of(dims),
          .ldc = dims.in,
          .out_dtype = dims.gradient_dtype,
          .accumulate = accumulate};
}

/// @param least_in 0: without inputs a bias is left.
void check(const LinearDims& dims, std::int64_t least_in = 1) {
  STRATA_INVARIANT(dims.tokens > 0 && dims.in >= least_in && dims.out > 0,
                   fmt::format("empty linear layer: tokens {}, in {}, out {}", dims.tokens, dims.in, dims.out));
  STRATA_INVARIANT(row_of(dims) >= dims.in, fmt::format("{} columns in rows of {}", dims.in, dims.row));
  STRATA_INVARIANT(dims.out_row == 0 || (dims.out_row >= dims.out && !dims.bias),
                   fmt::format("{} columns in rows of {}, bias {}", dims.out, dims.out_row, dims.bias));
  STRATA_INVARIANT(dims.dtype == DType::f32 || dims.dtype == DType::bf16, "activations are f32 or bf16");
  STRATA_INVARIANT(
      dims.gradient_dtype == DType::f32 || (dims.gradient_dtype == DType::bf16 && dims.dtype == DType::bf16),
      "gradients are f32, or bf16 where activations are");
}

struct DnnlProduct {
  BoundPrimitive pack_b;  // empty where the product takes B as stored
  BoundPrimitive product;
  std::int64_t packed_b_bytes = 0;
};

DnnlProduct build(const AmxGemmDims& dims, DType dtype, bool pack_b) {
  const std::string what =
      fmt::format("multiply [{},{}] by [{},{}] in {}", dims.m, dims.k, dims.k, dims.n, to_string(dtype));
  require_32_bits(what, {dims.m, dims.k, dims.n});
  using Tag = memory::format_tag;
  const auto strides = [](std::int64_t row, bool transpose) {
    return transpose ? memory::dims{1, row} : memory::dims{row, 1};
  };
  const memory::desc a({dims.m, dims.k}, dnnl_type(dtype), strides(dims.lda, dims.transpose_a));
  const memory::desc b({dims.k, dims.n}, dnnl_type(dtype), strides(dims.ldb, dims.transpose_b));
  const memory::desc b_wanted = pack_b ? memory::desc({dims.k, dims.n}, dnnl_type(dtype), Tag::any) : b;
  const memory::desc c({dims.m, dims.n}, dnnl_type(dims.out_dtype), strides(dims.ldc, false));
  const memory::desc bias = dims.bias ? memory::desc({1, dims.n}, dnnl_type(dtype), Tag::ab) : memory::desc();
  dnnl::primitive_attr attributes = user_scratchpad();
  if (dims.accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0F);
    attributes.set_post_ops(sum);
  }
  return dnnl_build(what, [&] {
    const dnnl::matmul::desc operation =
        dims.bias ? dnnl::matmul::desc(computable(a), computable(b_wanted), computable(bias), computable(c))
                  : dnnl::matmul::desc(computable(a), computable(b_wanted), computable(c));
    const dnnl::matmul::primitive_desc description(operation, attributes, dnnl_engine());
    DnnlProduct built;
    built.pack_b = make_reorder(b, description.weights_desc());
    built.packed_b_bytes = built.pack_b ? static_cast<std::int64_t>(description.weights_desc().get_size()) : 0;
    const BoundPrimitive::Argument left{DNNL_ARG_SRC, a, Access::read};
    const BoundPrimitive::Argument right{DNNL_ARG_WEIGHTS, built.pack_b ? description.weights_desc() : b, Access::read};
    const BoundPrimitive::Argument result{DNNL_ARG_DST, c, dims.accumulate ? Access::update : Access::write};
    const dnnl::matmul primitive(description);
    built.product = dims.bias ? BoundPrimitive(primitive, {left, right, result, {DNNL_ARG_BIAS, bias, Access::read}},
                                               description.scratchpad_desc())
                              : BoundPrimitive(primitive, {left, right, result}, description.scratchpad_desc());
    return built;
  });
}

DnnlProduct& find(const AmxGemmDims& dims, DType dtype, bool pack_b) {
  thread_local PrimitiveCache<DnnlProduct> cache;
  const PrimitiveKey key{dims.m,
                         dims.n,
                         dims.k,
                         dims.transpose_a,
                         dims.transpose_b,
                         dims.lda,
                         dims.ldb,
                         dims.ldc,
                         static_cast<std::int64_t>(dtype),
                         static_cast<std::int64_t>(dims.out_dtype),
                         dims.accumulate,
                         dims.bias,
                         pack_b,
                         kernel_threads()};
  return cache.find_or_build(key, [&] { return build(dims, dtype, pack_b); });
}

struct DnnlBuffers {
  std::byte* packed_b;
  std::byte* scratchpad;
};
DnnlBuffers cut(WorkspaceCutter& cutter, const DnnlProduct& product) {
  // oneDNN asks for more scratchpad than it writes: it goes below what is written to the last byte.
  DnnlBuffers buffers{};
  buffers.scratchpad =
      cutter.take(std::max(product.product.scratchpad_bytes(), product.pack_b ? product.pack_b.scratchpad_bytes() : 0));
  buffers.packed_b = cutter.take(product.packed_b_bytes);
  return buffers;
}

bool on_amx(DType dtype) { return dtype == DType::bf16 && amx_available(); }

/// oneDNN's sgemm is faster than its matmul. Of AVX-512 (GPT-2's and SmolLM's layers on Zen 4, 4,096 and 2,048 tokens)
/// that is so of forward products with four times as many outputs as inputs or more (by 3 to 4 %; of others it loses up
/// to 20 %), and of weights' gradients, unless there are so many outputs (by 1 to 10 %; those lose 3 %), and where rows
/// of dy do not begin at the width of a vector (by 9 to 14 %).
bool is_faster_by_sgemm(const AmxGemmDims& dims, DType dtype) {
  if (dtype != DType::f32 || dims.bias) return false;
  constexpr std::int64_t vector_floats = 16;
  if (dims.transpose_a) return dims.m < 4 * dims.n || dims.lda % vector_floats != 0;
  return dims.transpose_b && dims.n >= 4 * dims.k;
}

/// Needs no workspace: sgemm packs its operands piece by piece in memory of its own, outside of the arena (GPT-2's
/// layers on two threads: 16 MiB at most).
void multiply_by_sgemm(const AmxGemmDims& dims, const float* a, const float* b, float* c) {
  limit_dnnl();
  const std::string what = fmt::format("multiply [{},{}] by [{},{}]", dims.m, dims.k, dims.k, dims.n);
  require_32_bits(what, {dims.m, dims.k, dims.n});
  const auto order = [](bool transposed) { return transposed ? 'T' : 'N'; };
  dnnl_build(what, [&] {
    const dnnl_status_t status = dnnl_sgemm(order(dims.transpose_a), order(dims.transpose_b), dims.m, dims.n, dims.k,
                                            1.0F, a, dims.lda, b, dims.ldb, dims.accumulate ? 1.0F : 0.0F, c, dims.ldc);
    dnnl::error::wrap_c_api(status, "sgemm");
    return status;
  });
}

std::int64_t workspace_bytes(const AmxGemmDims& dims, DType dtype, bool pack_b) {
  if (on_amx(dtype)) {
    return amx_gemm_workspace_bytes(dims);
  }
  if (is_faster_by_sgemm(dims, dtype)) return 0;
  WorkspaceCutter cutter;
  cut(cutter, find(dims, dtype, pack_b));
  return cutter.taken_bytes();
}

void multiply(const AmxGemmDims& dims, DType dtype, bool pack_b, const void* a, const void* b, const void* bias,
              void* c, std::span<std::byte> workspace) {
  if (on_amx(dtype)) {
    amx_gemm(dims, static_cast<const bf16*>(a), static_cast<const bf16*>(b), static_cast<const bf16*>(bias), c,
             workspace);
    return;
  }
  if (is_faster_by_sgemm(dims, dtype)) {
    multiply_by_sgemm(dims, static_cast<const float*>(a), static_cast<const float*>(b), static_cast<float*>(c));
    return;
  }
  DnnlProduct& product = find(dims, dtype, pack_b);
  WorkspaceCutter cutter(workspace);
  const DnnlBuffers buffers = cut(cutter, product);
  if (product.pack_b) {
    product.pack_b.run({b, buffers.packed_b}, buffers.scratchpad);
    b = buffers.packed_b;
  }
  if (dims.bias) {
    product.product.run({a, b, c, bias}, buffers.scratchpad);
  } else {
    product.product.run({a, b, c}, buffers.scratchpad);
  }
}

constexpr bool as_stored = false;
constexpr bool as_packed = true;

}  // namespace

std::int64_t linear_forward_workspace_bytes(const LinearDims& dims, bool accumulate) {
  check(dims);
  return workspace_bytes(forward_product(dims, accumulate), dims.dtype, as_stored);
}

std::int64_t linear_backward_input_workspace_bytes(const LinearDims& dims, bool accumulate) {
  check(dims);
  return workspace_bytes(backward_input_product(dims, accumulate), dims.dtype, as_packed);
}

std::int64_t linear_backward_weight_workspace_bytes(const LinearDims& dims, bool accumulate) {
  check(dims, dims.bias ? 0 : 1);
  return dims.in == 0 ? 0 : workspace_bytes(backward_weight_product(dims, accumulate), dims.dtype, as_packed);
}

void linear_forward(const LinearDims& dims, const void* x, const void* weight, const void* bias, void* y,
                    bool accumulate, std::span<std::byte> workspace) {
  check(dims);
  STRATA_INVARIANT(!accumulate || !dims.bias, "the bias is added once");
  multiply(forward_product(dims, accumulate), dims.dtype, as_stored, x, weight, bias, y, workspace);
}

void linear_backward_input(const LinearDims& dims, const void* dy, const void* weight, void* dx, bool accumulate,
                           std::span<std::byte> workspace) {
  check(dims);
  multiply(backward_input_product(dims, accumulate), dims.dtype, as_packed, dy, weight, nullptr, dx, workspace);
}

void linear_backward_weight(const LinearDims& dims, const void* dy, const void* x, void* dweight, void* dbias,
                            const LinearAccumulate& accumulate, std::span<std::byte> workspace) {
  check(dims, dims.bias ? 0 : 1);
  if (dims.in > 0) {
    multiply(backward_weight_product(dims, accumulate.weight), dims.dtype, as_packed, dy, x, nullptr, dweight,
             workspace);
  }
  if (dims.bias) {
    column_sums({.rows = dims.tokens, .columns = dims.out, .dtype = dims.dtype, .sums_dtype = dims.gradient_dtype}, dy,
                dbias, accumulate.bias);
  }
}

}  // namespace strata::cpu
