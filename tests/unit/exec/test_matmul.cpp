/// @file
/// Matrix products against double, over layouts, types, batches; exact on integers, with one rounding at the end;
/// accumulation, bias, alpha; inside a parallel region.

#include <gtest/gtest.h>
#include <omp.h>

#include "base/error.hpp"
#include "exec/cpu/kernels/matmul.hpp"
#include "unit/exec/dense_reference.hpp"

namespace strata::cpu::test_matmul {
namespace {

using test::integer_tensor;
using test::random_tensor;
using test::relative_error;
using test::Tensor;
using test::tolerance;
using test::Workspace;

struct Operands {
  Tensor a;
  Tensor b;
  Tensor bias;
  Tensor c;
};

std::int64_t or_dense(std::int64_t ld, std::int64_t cols) { return ld == 0 ? cols : ld; }

/// C, element by element of its memory: what the product leaves alone keeps its old value.
std::vector<double> reference(const BatchedMatmulDims& dims, const Operands& given) {
  const MatmulDims& one = dims.one;
  const std::int64_t lda = or_dense(one.lda, one.transpose_a ? one.m : one.k);
  const std::int64_t ldb = or_dense(one.ldb, one.transpose_b ? one.k : one.n);
  const std::int64_t ldc = or_dense(one.ldc, one.n);
  std::vector<double> c = given.c.values();
  for (std::int64_t j = 0; j < dims.batch; ++j) {
    for (std::int64_t row = 0; row < one.m; ++row) {
      for (std::int64_t col = 0; col < one.n; ++col) {
        double sum = 0;
        for (std::int64_t k = 0; k < one.k; ++k) {
          const std::int64_t a = j * dims.batch_stride_a + (one.transpose_a ? k * lda + row : row * lda + k);
          const std::int64_t b = j * dims.batch_stride_b + (one.transpose_b ? col * ldb + k : k * ldb + col);
          sum += given.a.at(a) * given.b.at(b);
        }
        double& out = c[static_cast<std::size_t>(j * dims.batch_stride_c + row * ldc + col)];
        out =
            (one.accumulate ? out : 0.0) + static_cast<double>(one.alpha) * sum + (one.bias ? given.bias.at(col) : 0.0);
      }
    }
  }
  return c;
}

void run(const BatchedMatmulDims& dims, Operands& operands) {
  Workspace workspace(matmul_workspace_bytes(dims));
  matmul(dims, operands.a.data(), operands.b.data(), dims.one.bias ? operands.bias.data() : nullptr, operands.c.data(),
         workspace.span());
  EXPECT_TRUE(workspace.guard_intact());
}

constexpr std::int64_t plenty = 20000;  // elements: more than any operand here has

/// C is no larger than it must be, so that the norm of the error is over what was computed.
Operands random_operands(const BatchedMatmulDims& dims) {
  const MatmulDims& one = dims.one;
  const std::int64_t c_elements =
      (dims.batch - 1) * dims.batch_stride_c + (one.m - 1) * or_dense(one.ldc, one.n) + one.n;
  return {random_tensor(one.dtype, plenty, "a"), random_tensor(one.dtype, plenty, "b"),
          random_tensor(one.dtype, plenty, "bias"), random_tensor(one.out_dtype, c_elements, "c")};
}

void expect_close(const BatchedMatmulDims& dims) {
  Operands operands = random_operands(dims);
  const std::vector<double> expected = reference(dims, operands);
  run(dims, operands);
  EXPECT_LT(relative_error(operands.c.values(), expected), tolerance(dims.one.out_dtype));
}

constexpr std::pair<DType, DType> types[] = {
    {DType::f32, DType::f32}, {DType::bf16, DType::bf16}, {DType::bf16, DType::f32}};

TEST(Matmul, EveryLayoutAndType) {
  for (const auto& [dtype, out_dtype] : types) {
    for (const bool transpose_a : {false, true}) {
      for (const bool transpose_b : {false, true}) {
        for (const bool accumulate : {false, true}) {
          SCOPED_TRACE(testing::Message() << to_string(dtype) << "->" << to_string(out_dtype) << " transposed "
                                          << transpose_a << transpose_b << " accumulate " << accumulate);
          expect_close({.one = {.m = 7,
                                .n = 13,
                                .k = 5,
                                .dtype = dtype,
                                .out_dtype = out_dtype,
                                .transpose_a = transpose_a,
                                .transpose_b = transpose_b,
                                .accumulate = accumulate}});
          expect_close({.one = {.m = 33,
                                .n = 65,
                                .k = 130,
                                .dtype = dtype,
                                .out_dtype = out_dtype,
                                .transpose_a = transpose_a,
                                .transpose_b = transpose_b,
                                .lda = 141,
                                .ldb = 137,
                                .ldc = 99,
                                .accumulate = accumulate}});
        }
      }
    }
  }
}

TEST(Matmul, BiasAndAlpha) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    expect_close({.one = {.m = 9, .n = 21, .k = 17, .dtype = dtype, .out_dtype = dtype, .bias = true}});
    expect_close(
        {.one = {.m = 9, .n = 21, .k = 17, .dtype = dtype, .out_dtype = dtype, .accumulate = true, .bias = true}});
    expect_close({.one = {.m = 9, .n = 21, .k = 17, .dtype = dtype, .out_dtype = dtype, .alpha = 0.125F}});
    expect_close(
        {.one = {.m = 9, .n = 21, .k = 17, .dtype = dtype, .out_dtype = dtype, .alpha = -1.5F, .accumulate = true}});
  }
}

TEST(Matmul, BatchOfHeadsInsideAFusedActivation) {
  // q·kᵀ and p·v of 3 heads of 11 columns, in rows of 3 · 3 · 11 (q, k, v side by side), 19 positions.
  constexpr std::int64_t heads = 3, width = 11, seq = 19, row = 3 * heads * width;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    expect_close({.one = {.m = seq,
                          .n = seq,
                          .k = width,
                          .dtype = dtype,
                          .out_dtype = DType::f32,
                          .transpose_b = true,
                          .lda = row,
                          .ldb = row,
                          .alpha = 0.25F},
                  .batch = heads,
                  .batch_stride_a = width,
                  .batch_stride_b = width,
                  .batch_stride_c = seq * seq});
    expect_close(
        {.one = {.m = seq, .n = width, .k = seq, .dtype = dtype, .out_dtype = dtype, .ldb = row, .ldc = heads * width},
         .batch = heads,
         .batch_stride_a = seq * seq,
         .batch_stride_b = width,
         .batch_stride_c = width});
    // One B for all products, as grouped key heads have.
    expect_close({.one = {.m = seq,
                          .n = seq,
                          .k = width,
                          .dtype = dtype,
                          .out_dtype = DType::f32,
                          .transpose_b = true,
                          .lda = row,
                          .ldb = row,
                          .accumulate = true},
                  .batch = heads,
                  .batch_stride_a = width,
                  .batch_stride_b = 0,
                  .batch_stride_c = seq * seq});
  }
}

/// Of integers every sum is exact in f32, so that C is the reference rounded once; what lies between its rows stays.
void expect_exact(const BatchedMatmulDims& dims) {
  const MatmulDims& one = dims.one;
  Operands operands{integer_tensor(one.dtype, plenty, "a"), integer_tensor(one.dtype, plenty, "b"),
                    integer_tensor(one.dtype, plenty, "bias"), integer_tensor(one.out_dtype, plenty, "c")};
  Tensor expected(one.out_dtype, plenty);
  const std::vector<double> sums = reference(dims, operands);
  for (std::int64_t i = 0; i < plenty; ++i) {
    expected.set(i, sums[static_cast<std::size_t>(i)]);
  }
  run(dims, operands);
  EXPECT_EQ(operands.c.values(), expected.values());
}

TEST(Matmul, IntegersAreExact) {
  for (const auto& [dtype, out_dtype] : types) {
    for (const bool transpose_a : {false, true}) {
      for (const bool transpose_b : {false, true}) {
        for (const bool accumulate : {false, true}) {
          for (const std::int64_t gap : {0, 6}) {
            SCOPED_TRACE(testing::Message()
                         << to_string(dtype) << "->" << to_string(out_dtype) << " transposed " << transpose_a
                         << transpose_b << " accumulate " << accumulate << " gap " << gap);
            MatmulDims one{.m = 31,
                           .n = 29,
                           .k = 117,
                           .dtype = dtype,
                           .out_dtype = out_dtype,
                           .transpose_a = transpose_a,
                           .transpose_b = transpose_b,
                           .accumulate = accumulate,
                           .bias = true};
            one.lda = (transpose_a ? one.m : one.k) + gap;
            one.ldb = (transpose_b ? one.k : one.n) + gap;
            one.ldc = one.n + gap;
            expect_exact({.one = one});
            one.bias = false;
            one.alpha = 16.0F;  // sums of more than bf16's 8 bits: rounding before the old C is added would show
            expect_exact(
                {.one = one, .batch = 3, .batch_stride_a = 4400, .batch_stride_b = 4400, .batch_stride_c = 1200});
            // Side by side in rows that they share.
            const std::int64_t width = one.lda;
            one.lda = 3 * width + gap;
            one.ldc = 3 * one.n + gap;
            expect_exact(
                {.one = one, .batch = 3, .batch_stride_a = width, .batch_stride_b = 0, .batch_stride_c = one.n});
          }
        }
      }
    }
  }
}

TEST(Matmul, SameBitsAgainAndInsideAParallelRegion) {
  const MatmulDims dims{.m = 65, .n = 70, .k = 90, .dtype = DType::bf16, .out_dtype = DType::f32};
  Operands once = random_operands({.one = dims});
  Operands again = random_operands({.one = dims});
  run({.one = dims}, once);
  run({.one = dims}, again);
  EXPECT_EQ(once.c.bits(), again.c.bits());

  std::vector<Operands> each;
  each.push_back(random_operands({.one = dims}));
  each.push_back(random_operands({.one = dims}));
#pragma omp parallel num_threads(2)
  run({.one = dims}, each[static_cast<std::size_t>(omp_get_thread_num())]);
  EXPECT_EQ(each[0].c.bits(), each[1].c.bits());
  EXPECT_LT(relative_error(each[0].c.values(), once.c.values()), 1e-6);
}

TEST(Matmul, RefusesWhatHasNoMeaning) {
  float value = 0;
  EXPECT_THROW(matmul_workspace_bytes(MatmulDims{.m = 3, .n = 0, .k = 2}), InternalError);
  EXPECT_THROW(matmul_workspace_bytes(MatmulDims{.m = 3, .n = 3, .k = 3, .dtype = DType::i32}), InternalError);
  EXPECT_THROW(matmul_workspace_bytes(MatmulDims{.m = 3, .n = 3, .k = 3, .lda = 2}), InternalError);
  EXPECT_THROW(matmul_workspace_bytes(MatmulDims{.m = 3, .n = 3, .k = 3, .alpha = 2, .bias = true}), InternalError);
  EXPECT_THROW(matmul_workspace_bytes(BatchedMatmulDims{.one = {.m = 3, .n = 3, .k = 3}, .batch = 2}), InternalError);
  const MatmulDims dims{
      .m = 300, .n = 300, .k = 300, .dtype = DType::bf16, .out_dtype = DType::bf16, .transpose_a = true};
  if (matmul_workspace_bytes(dims) > 0) {
    EXPECT_THROW(matmul(dims, &value, &value, nullptr, &value, {}), InternalError);
  }
}

}  // namespace
}  // namespace strata::cpu::test_matmul
