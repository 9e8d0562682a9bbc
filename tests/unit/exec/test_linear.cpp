/// @file
/// The linear layer and its gradients against double, at shapes that are no multiple of a tile; column sums; the AMX
/// product in every layout.

#include <gtest/gtest.h>
#include <omp.h>

#include "base/error.hpp"
#include "exec/cpu/kernels/amx_gemm.hpp"
#include "exec/cpu/kernels/column_sums.hpp"
#include "exec/cpu/kernels/linear.hpp"
#include "support/deep.hpp"
#include "unit/exec/dense_reference.hpp"

namespace strata::cpu::test_linear {
namespace {

using test::integer_tensor;
using test::Make;
using test::random_tensor;
using test::relative_error;
using test::Tensor;
using test::tolerance;
using test::Workspace;

struct Layer {
  LinearDims dims;
  Tensor x, weight, bias, y, dy, dx, dweight, dbias;

  Layer(const LinearDims& d, Make make)
      : dims(d),
        x(make(d.dtype, d.tokens * d.in, "x")),
        weight(make(d.dtype, d.out * d.in, "weight")),
        bias(make(d.dtype, d.out, "bias")),
        y(make(d.dtype, d.tokens * d.out, "y")),
        dy(make(d.dtype, d.tokens * d.out, "dy")),
        dx(make(d.dtype, d.tokens * d.in, "dx")),
        dweight(make(d.gradient_dtype, d.out * d.in, "dweight")),
        dbias(make(d.gradient_dtype, d.out, "dbias")) {}

  std::vector<double> expected_y() const {
    std::vector<double> result;
    for (std::int64_t t = 0; t < dims.tokens; ++t) {
      for (std::int64_t o = 0; o < dims.out; ++o) {
        double sum = dims.bias ? bias.at(o) : 0.0;
        for (std::int64_t i = 0; i < dims.in; ++i) {
          sum += x.at(t * dims.in + i) * weight.at(o * dims.in + i);
        }
        result.push_back(sum);
      }
    }
    return result;
  }
  std::vector<double> expected_dx(bool accumulate) const {
    std::vector<double> result;
    for (std::int64_t t = 0; t < dims.tokens; ++t) {
      for (std::int64_t i = 0; i < dims.in; ++i) {
        double sum = accumulate ? dx.at(t * dims.in + i) : 0.0;
        for (std::int64_t o = 0; o < dims.out; ++o) {
          sum += dy.at(t * dims.out + o) * weight.at(o * dims.in + i);
        }
        result.push_back(sum);
      }
    }
    return result;
  }
  std::vector<double> expected_dweight(bool accumulate) const {
    std::vector<double> result;
    for (std::int64_t o = 0; o < dims.out; ++o) {
      for (std::int64_t i = 0; i < dims.in; ++i) {
        double sum = accumulate ? dweight.at(o * dims.in + i) : 0.0;
        for (std::int64_t t = 0; t < dims.tokens; ++t) {
          sum += dy.at(t * dims.out + o) * x.at(t * dims.in + i);
        }
        result.push_back(sum);
      }
    }
    return result;
  }
  std::vector<double> expected_dbias(bool accumulate) const {
    std::vector<double> result;
    for (std::int64_t o = 0; o < dims.out; ++o) {
      double sum = accumulate ? dbias.at(o) : 0.0;
      for (std::int64_t t = 0; t < dims.tokens; ++t) {
        sum += dy.at(t * dims.out + o);
      }
      result.push_back(sum);
    }
    return result;
  }

  void forward() {
    Workspace workspace(linear_forward_workspace_bytes(dims, false));
    linear_forward(dims, x.data(), weight.data(), dims.bias ? bias.data() : nullptr, y.data(), false, workspace.span());
    EXPECT_TRUE(workspace.guard_intact());
  }
  void backward(bool accumulate) {
    Workspace for_input(linear_backward_input_workspace_bytes(dims, accumulate));
    linear_backward_input(dims, dy.data(), weight.data(), dx.data(), accumulate, for_input.span());
    EXPECT_TRUE(for_input.guard_intact());
    Workspace for_weight(linear_backward_weight_workspace_bytes(dims, accumulate));
    linear_backward_weight(dims, dy.data(), x.data(), dweight.data(), dims.bias ? dbias.data() : nullptr,
                           {accumulate, accumulate}, for_weight.span());
    EXPECT_TRUE(for_weight.guard_intact());
  }
};

constexpr std::pair<DType, DType> types[] = {
    {DType::f32, DType::f32}, {DType::bf16, DType::f32}, {DType::bf16, DType::bf16}};

TEST(Linear, ForwardAndGradientsAtOddShapes) {
  struct Shape {
    std::int64_t tokens, in, out;
  };
  // The last two have more than one chunk of the inner dimension (in forward and dx; in dW), the one before more than
  // one slab; of f32 the second goes forward by sgemm and the others do not, whose weights' gradients do.
  for (const Shape& shape : {Shape{7, 5, 13}, Shape{33, 12, 64}, Shape{33, 65, 31}, Shape{1, 48, 97},
                             Shape{515, 40, 35}, Shape{35, 1100, 550}, Shape{1090, 37, 45}}) {
    for (const auto& [dtype, gradient_dtype] : types) {
      for (const bool option : {false, true}) {
        if (is_sanitized() && option != (dtype == gradient_dtype)) continue;
        SCOPED_TRACE(testing::Message() << shape.tokens << "x" << shape.in << "->" << shape.out << " "
                                        << to_string(dtype) << " gradients " << to_string(gradient_dtype)
                                        << " bias and accumulate " << option);
        Layer layer({.tokens = shape.tokens,
                     .in = shape.in,
                     .out = shape.out,
                     .dtype = dtype,
                     .gradient_dtype = gradient_dtype,
                     .bias = option},
                    random_tensor);
        const auto expected_dx = layer.expected_dx(option);
        const auto expected_dweight = layer.expected_dweight(option);
        const auto expected_dbias = layer.expected_dbias(option);
        layer.forward();
        layer.backward(option);
        EXPECT_LT(relative_error(layer.y.values(), layer.expected_y()), tolerance(dtype));
        EXPECT_LT(relative_error(layer.dx.values(), expected_dx), tolerance(dtype));
        EXPECT_LT(relative_error(layer.dweight.values(), expected_dweight), tolerance(gradient_dtype));
        if (option) {
          EXPECT_LT(relative_error(layer.dbias.values(), expected_dbias), tolerance(gradient_dtype));
        }
      }
    }
  }
}

TEST(Linear, IntegersAreExact) {
  for (const auto& [dtype, gradient_dtype] : types) {
    Layer layer({.tokens = 47, .in = 19, .out = 37, .dtype = dtype, .gradient_dtype = gradient_dtype, .bias = true},
                integer_tensor);
    const auto expected_dx = layer.expected_dx(true);
    const auto expected_dweight = layer.expected_dweight(true);
    const auto expected_dbias = layer.expected_dbias(true);
    layer.forward();
    layer.backward(true);
    EXPECT_EQ(layer.y.values(), layer.expected_y());
    EXPECT_EQ(layer.dx.values(), expected_dx);
    EXPECT_EQ(layer.dweight.values(), expected_dweight);
    EXPECT_EQ(layer.dbias.values(), expected_dbias);
  }
}

/// Columns [first, first + in) of the layer's input with their weight as a matrix of its own: one slice after another
/// gives what the layer gives. Slices of 1, of unaligned and of more than a slab's columns.
TEST(Linear, SlicesAlongTheInputAddUp) {
  const std::int64_t cuts[] = {0, 1, 18, 35, 1100};
  for (const auto& [dtype, gradient_dtype] : types) {
    for (const bool accumulate : {false, true}) {
      Layer layer(
          {.tokens = 35, .in = cuts[4], .out = 37, .dtype = dtype, .gradient_dtype = gradient_dtype, .bias = true},
          integer_tensor);
      for (std::int64_t i = 0; i < layer.dx.size(); ++i) layer.dx.set(i, static_cast<double>(i % 3));
      Tensor dweight(gradient_dtype, layer.dweight.size());
      const auto expected_dx = layer.expected_dx(accumulate);
      const auto expected_dweight = layer.expected_dweight(false);
      const auto expected_dbias = layer.expected_dbias(true);
      for (int s = 0; s < 4; ++s) {
        LinearDims dims = layer.dims;
        dims.in = cuts[s + 1] - cuts[s];
        dims.row = cuts[4];
        dims.bias = s == 0;
        const auto columns = [&](Tensor& tensor) {
          return static_cast<std::byte*>(tensor.data()) + cuts[s] * size_of(dtype);
        };
        Tensor weight(dtype, dims.out * dims.in);
        for (std::int64_t i = 0; i < weight.size(); ++i) {
          weight.set(i, layer.weight.at(i / dims.in * dims.row + cuts[s] + i % dims.in));
        }
        Workspace forward(linear_forward_workspace_bytes(dims, s > 0));
        linear_forward(dims, columns(layer.x), weight.data(), s == 0 ? layer.bias.data() : nullptr, layer.y.data(),
                       s > 0, forward.span());
        Workspace for_input(linear_backward_input_workspace_bytes(dims, accumulate));
        linear_backward_input(dims, layer.dy.data(), weight.data(), columns(layer.dx), accumulate, for_input.span());
        Workspace for_weight(linear_backward_weight_workspace_bytes(dims, false));
        Tensor slice(gradient_dtype, weight.size());
        linear_backward_weight(dims, layer.dy.data(), columns(layer.x), slice.data(),
                               s == 0 ? layer.dbias.data() : nullptr, {false, true}, for_weight.span());
        EXPECT_TRUE(forward.guard_intact() && for_input.guard_intact() && for_weight.guard_intact());
        for (std::int64_t i = 0; i < slice.size(); ++i) {
          dweight.set(i / dims.in * dims.row + cuts[s] + i % dims.in, slice.at(i));
        }
      }
      EXPECT_LT(relative_error(layer.y.values(), layer.expected_y()), tolerance(dtype));
      if (dtype == DType::f32) {
        EXPECT_EQ(layer.y.values(), layer.expected_y());
      }
      EXPECT_LT(relative_error(layer.dx.values(), expected_dx), tolerance(dtype));
      EXPECT_LT(relative_error(dweight.values(), expected_dweight), tolerance(gradient_dtype));
      if (gradient_dtype == DType::f32) {
        EXPECT_EQ(layer.dbias.values(), expected_dbias) << "the bias is added to, the weight is written";
        EXPECT_EQ(dweight.values(), expected_dweight);
      }
    }
  }
  const LinearDims narrow{.tokens = 2, .in = 3, .out = 2, .row = 2};
  EXPECT_THROW(linear_forward_workspace_bytes(narrow, false), InternalError);
}

TEST(Linear, SameBitsEveryTime) {
  for (const auto& [dtype, gradient_dtype] : types) {
    const LinearDims dims{
        .tokens = 130, .in = 70, .out = 90, .dtype = dtype, .gradient_dtype = gradient_dtype, .bias = true};
    Layer once(dims, random_tensor);
    Layer again(dims, random_tensor);
    for (Layer* layer : {&once, &again}) {
      layer->forward();
      layer->backward(true);
    }
    EXPECT_EQ(once.y.bits(), again.y.bits());
    EXPECT_EQ(once.dx.bits(), again.dx.bits());
    EXPECT_EQ(once.dweight.bits(), again.dweight.bits());
    EXPECT_EQ(once.dbias.bits(), again.dbias.bits());
  }
}

TEST(Linear, RefusesASmallWorkspaceAndBadTypes) {
  // Whether there is a workspace that could be too small is the library's choice, by type and processor.
  for (const auto& [dtype, gradient_dtype] : types) {
    const LinearDims dims{.tokens = 40, .in = 33, .out = 20, .dtype = dtype, .gradient_dtype = gradient_dtype};
    Layer layer(dims, random_tensor);
    Workspace workspace(linear_backward_weight_workspace_bytes(dims, false));
    if (workspace.span().size() <= 64) continue;
    const auto small = workspace.span().first(workspace.span().size() - 64);
    EXPECT_THROW(
        linear_backward_weight(dims, layer.dy.data(), layer.x.data(), layer.dweight.data(), nullptr, {}, small),
        InternalError);
  }
  EXPECT_THROW(linear_forward_workspace_bytes({.tokens = 0, .in = 3, .out = 2}, false), InternalError);
  EXPECT_THROW(linear_forward_workspace_bytes({.tokens = 2, .in = 3, .out = 2, .dtype = DType::i32}, false),
               InternalError);
  EXPECT_THROW(linear_forward_workspace_bytes({.tokens = 2, .in = 3, .out = 2, .gradient_dtype = DType::bf16}, false),
               InternalError);
}

/// Runs body on one thread and on two, and returns what it returned.
template <typename Body>
auto with_threads(int num_threads, Body&& body) {
  const int before = omp_get_max_threads();
  omp_set_num_threads(num_threads);
  auto result = body();
  omp_set_num_threads(before);
  return result;
}

TEST(ColumnSums, SameBitsForAnyThreadsAndAnySplitOfColumns) {
  constexpr std::int64_t rows = 333, cols = 700;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor matrix = random_tensor(dtype, rows * cols, "matrix");
    std::vector<double> expected(cols);
    for (std::int64_t i = 0; i < rows * cols; ++i) {
      expected[static_cast<std::size_t>(i % cols)] += matrix.at(i);
    }
    const auto sums = [&](int threads) {
      return with_threads(threads, [&] {
        Tensor result(DType::f32, cols);
        column_sums({.rows = rows, .columns = cols, .dtype = dtype}, matrix.data(), result.data(), false);
        return result;
      });
    };
    const Tensor one = sums(1);
    EXPECT_EQ(one.bits(), sums(2).bits());
    EXPECT_EQ(one.bits(), sums(3).bits());
    EXPECT_LT(relative_error(one.values(), expected), 1e-6);

    constexpr std::int64_t part = 130;  // the first columns alone
    Tensor slice(dtype, rows * part);
    for (std::int64_t i = 0; i < rows * part; ++i) {
      slice.set(i, matrix.at(i / part * cols + i % part));
    }
    Tensor of_slice(DType::f32, part);
    column_sums({.rows = rows, .columns = part, .dtype = dtype}, slice.data(), of_slice.data(), false);
    EXPECT_EQ(of_slice.bits(), one.bits().substr(0, part * sizeof(float)));
  }
}

class Amx : public testing::Test {
 protected:
  void SetUp() override {
    if (!amx_available()) {
      GTEST_SKIP() << "the processor has no AMX";
    }
  }
};

Tensor amx_product(const AmxGemmDims& dims, const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& old) {
  Tensor c(old.dtype(), old.size());
  std::memcpy(c.data(), old.data(), old.bits().size());
  Workspace workspace(amx_gemm_workspace_bytes(dims));
  amx_gemm(dims, static_cast<const bf16*>(a.data()), static_cast<const bf16*>(b.data()),
           dims.bias ? static_cast<const bf16*>(bias.data()) : nullptr, c.data(), workspace.span());
  EXPECT_TRUE(workspace.guard_intact());
  return c;
}

TEST_F(Amx, EveryLayoutWithLeadingDimensions) {
  constexpr std::int64_t m = 77, n = 45, k = 1063, lda = 1070, ldb = 1091, ldc = 51;
  const Tensor a = random_tensor(DType::bf16, k * lda, "a");
  const Tensor b = random_tensor(DType::bf16, k * ldb, "b");
  const Tensor bias = random_tensor(DType::bf16, n, "bias");
  for (const DType out_dtype : {DType::f32, DType::bf16}) {
    const Tensor old = random_tensor(out_dtype, m * ldc, "c");
    for (const bool transpose_a : {false, true}) {
      for (const bool transpose_b : {false, true}) {
        for (const bool option : {false, true}) {
          const AmxGemmDims dims{.m = m,
                                 .n = n,
                                 .k = k,
                                 .transpose_a = transpose_a,
                                 .transpose_b = transpose_b,
                                 .lda = lda,
                                 .ldb = ldb,
                                 .ldc = ldc,
                                 .out_dtype = out_dtype,
                                 .accumulate = option,
                                 .bias = option};
          std::vector<double> expected = old.values();  // columns between n and ldc stay
          for (std::int64_t row = 0; row < m; ++row) {
            for (std::int64_t col = 0; col < n; ++col) {
              double sum = option ? old.at(row * ldc + col) + bias.at(col) : 0.0;
              for (std::int64_t i = 0; i < k; ++i) {
                sum += a.at(transpose_a ? i * lda + row : row * lda + i) *
                       b.at(transpose_b ? col * ldb + i : i * ldb + col);
              }
              expected[static_cast<std::size_t>(row * ldc + col)] = sum;
            }
          }
          const Tensor c = amx_product(dims, a, b, bias, old);
          EXPECT_LT(relative_error(c.values(), expected), tolerance(out_dtype));
          for (std::int64_t row = 0; row < m; ++row) {
            for (std::int64_t col = n; col < ldc; ++col) {
              EXPECT_EQ(c.at(row * ldc + col), old.at(row * ldc + col));
            }
          }
        }
      }
    }
  }
}

TEST_F(Amx, SameBitsForAnyThreads) {
  const AmxGemmDims dims{.m = 1100, .n = 70, .k = 1500, .transpose_a = true};
  const Tensor a = random_tensor(DType::bf16, dims.m * dims.k, "a");
  const Tensor b = random_tensor(DType::bf16, dims.n * dims.k, "b");
  const Tensor old(DType::f32, dims.m * dims.n);
  const auto product = [&](int threads) {
    return with_threads(threads, [&] { return amx_product(dims, a, b, old, old); });
  };
  const Tensor one = product(1);
  EXPECT_EQ(one.bits(), product(2).bits());
  EXPECT_EQ(one.bits(), product(3).bits());
}

}  // namespace
}  // namespace strata::cpu::test_linear
