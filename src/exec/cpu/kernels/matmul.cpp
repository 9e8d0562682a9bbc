/// @file
/// Matrix products: one oneDNN primitive for each distinct dims, over strided descriptors of the caller's memory.

#include "exec/cpu/kernels/matmul.hpp"

#include <fmt/format.h>

#include <bit>

#include "base/error.hpp"
#include "exec/cpu/kernels/dnnl_context.hpp"

namespace strata::cpu {

namespace {

using dnnl::memory;

/// Layout of an operand with logical shape [rows, cols] stored row-major, or column-major when @p transposed.
memory::desc operand(const BatchedMatmulDims& dims, DType dtype, std::int64_t rows, std::int64_t cols, std::int64_t ld,
                     bool transposed, std::int64_t batch_stride) {
  const std::int64_t stored_cols = transposed ? rows : cols;
  ld = ld == 0 ? stored_cols : ld;
  STRATA_INVARIANT(ld >= stored_cols, fmt::format("leading dimension {} of rows of {} elements", ld, stored_cols));
  const std::int64_t row_stride = transposed ? 1 : ld;
  const std::int64_t col_stride = transposed ? ld : 1;
  if (dims.batch == 1) {
    return {{rows, cols}, dnnl_type(dtype), {row_stride, col_stride}};
  }
  return {{batch_stride == 0 ? 1 : dims.batch, rows, cols}, dnnl_type(dtype), {batch_stride, row_stride, col_stride}};
}

BoundPrimitive build(const BatchedMatmulDims& dims) {
  const MatmulDims& one = dims.one;
  const memory::desc a = operand(dims, one.dtype, one.m, one.k, one.lda, one.transpose_a, dims.batch_stride_a);
  const memory::desc b = operand(dims, one.dtype, one.k, one.n, one.ldb, one.transpose_b, dims.batch_stride_b);
  const memory::desc c = operand(dims, one.out_dtype, one.m, one.n, one.ldc, false, dims.batch_stride_c);
  dnnl::primitive_attr attributes = user_scratchpad();
  if (one.alpha != 1.0F) {
    attributes.set_output_scales(0, {one.alpha});
  }
  if (one.accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0F);
    attributes.set_post_ops(sum);
  }
  const std::string what = fmt::format("multiply {} x [{},{}] by [{},{}], {} to {}", dims.batch, one.m, one.k, one.k,
                                       one.n, to_string(one.dtype), to_string(one.out_dtype));
  const Access to_c = one.accumulate ? Access::update : Access::write;
  return dnnl_build(what, [&] {
    if (one.bias) {
      const memory::desc bias = dims.batch == 1
                                    ? memory::desc({1, one.n}, dnnl_type(one.dtype), memory::format_tag::ab)
                                    : memory::desc({1, 1, one.n}, dnnl_type(one.dtype), memory::format_tag::abc);
      const dnnl::matmul::primitive_desc description({computable(a), computable(b), computable(bias), computable(c)},
                                                     attributes, dnnl_engine());
      return BoundPrimitive(dnnl::matmul(description),
                            {{DNNL_ARG_SRC, a, Access::read},
                             {DNNL_ARG_WEIGHTS, b, Access::read},
                             {DNNL_ARG_BIAS, bias, Access::read},
                             {DNNL_ARG_DST, c, to_c}},
                            description.scratchpad_desc());
    }
    const dnnl::matmul::primitive_desc description({computable(a), computable(b), computable(c)}, attributes,
                                                   dnnl_engine());
    return BoundPrimitive(
        dnnl::matmul(description),
        {{DNNL_ARG_SRC, a, Access::read}, {DNNL_ARG_WEIGHTS, b, Access::read}, {DNNL_ARG_DST, c, to_c}},
        description.scratchpad_desc());
  });
}

BoundPrimitive& find(const BatchedMatmulDims& dims) {
  const MatmulDims& one = dims.one;
  STRATA_INVARIANT(one.m > 0 && one.n > 0 && one.k > 0 && dims.batch > 0,
                   fmt::format("empty product: batch {}, m {}, n {}, k {}", dims.batch, one.m, one.n, one.k));
  STRATA_INVARIANT(!one.bias || one.alpha == 1.0F, "alpha with a bias has no defined order");
  STRATA_INVARIANT(dims.batch == 1 || dims.batch_stride_c > 0, "the products of a batch would share C");
  thread_local PrimitiveCache<BoundPrimitive> cache;
  const PrimitiveKey key{one.m,
                         one.n,
                         one.k,
                         static_cast<std::int64_t>(one.dtype),
                         static_cast<std::int64_t>(one.out_dtype),
                         one.transpose_a,
                         one.transpose_b,
                         one.lda,
                         one.ldb,
                         one.ldc,
                         std::bit_cast<std::int32_t>(one.alpha),
                         one.accumulate,
                         one.bias,
                         dims.batch,
                         dims.batch_stride_a,
                         dims.batch_stride_b,
                         dims.batch_stride_c,
                         kernel_threads()};
  return cache.find_or_build(key, [&] { return build(dims); });
}

}  // namespace

std::int64_t matmul_workspace_bytes(const MatmulDims& dims) {
  return matmul_workspace_bytes(BatchedMatmulDims{.one = dims});
}

std::int64_t matmul_workspace_bytes(const BatchedMatmulDims& dims) {
  WorkspaceCutter cutter;
  cutter.take(find(dims).scratchpad_bytes());
  return cutter.taken_bytes();
}

void matmul(const MatmulDims& dims, const void* a, const void* b, const void* bias, void* c,
            std::span<std::byte> workspace) {
  matmul(BatchedMatmulDims{.one = dims}, a, b, bias, c, workspace);
}

void matmul(const BatchedMatmulDims& dims, const void* a, const void* b, const void* bias, void* c,
            std::span<std::byte> workspace) {
  BoundPrimitive& product = find(dims);
  WorkspaceCutter cutter(workspace);
  std::byte* scratchpad = cutter.take(product.scratchpad_bytes());
  if (dims.one.bias) {
    product.run({a, b, bias, c}, scratchpad);
  } else {
    product.run({a, b, c}, scratchpad);
  }
}

}  // namespace strata::cpu
