/// @file
/// Products of packed bf16 operands against double, at sizes that are no multiples of a panel; a row's bits depend on
/// nothing but the row and B.

#include <gtest/gtest.h>

#include <cstring>

#include "base/ceil_div.hpp"
#include "exec/cpu/kernels/bf16_panels.hpp"
#include "exec/cpu/kernels/bf16_unit.hpp"
#include "unit/exec/dense_reference.hpp"

namespace strata::cpu::test_bf16_panels {
namespace {

using test::random_tensor;
using test::relative_error;
using test::Tensor;
using test::tolerance;

class Bf16Panels : public testing::Test {
 protected:
  void SetUp() override {
    if (bf16_unit() == Bf16Unit::none) {
      GTEST_SKIP() << "the processor has neither AMX nor AVX512_BF16";
    }
  }
};

struct Operand {
  std::int64_t num_lines;
  std::int64_t num_k;
  std::int64_t ld;
  bool k_contiguous;
  Tensor tensor;

  Operand(std::int64_t lines, std::int64_t k, bool by_line, const char* name)
      : num_lines(lines),
        num_k(k),
        ld((by_line ? k : lines) + 3),
        k_contiguous(by_line),
        tensor(random_tensor(DType::bf16, (by_line ? lines : k) * ld, name)) {}

  double at(std::int64_t line, std::int64_t k) const { return tensor.at(k_contiguous ? line * ld + k : k * ld + line); }
  /// Lines from @p first on.
  Tensor packed(TileSide side, std::int64_t first = 0) const {
    const std::int64_t panels = ceil_div(num_lines - first, panel_lines);
    const std::int64_t steps = ceil_div(num_k, step_k);
    Tensor result(DType::bf16, panels * steps * step_values);
    pack_panels({.data = static_cast<const bf16*>(tensor.data()) + (k_contiguous ? first * ld : first),
                 .ld = ld,
                 .order = k_contiguous ? LineOrder::k_contiguous : LineOrder::lines_contiguous,
                 .num_lines = num_lines - first,
                 .num_k = num_k},
                side, panels, steps, static_cast<bf16*>(result.data()));
    return result;
  }
};

/// Whole panels of C = or += A · B, from line @p first of A on.
Tensor product(const Operand& a, const Operand& b, std::int64_t first, bool add) {
  const Tensor packed_a = a.packed(TileSide::rows_of_a, first);
  const Tensor packed_b = b.packed(TileSide::columns_of_b);
  const std::int64_t steps = ceil_div(a.num_k, step_k);
  const PackedPanels panels_a{static_cast<const bf16*>(packed_a.data()), ceil_div(a.num_lines - first, panel_lines),
                              steps * step_values};
  const PackedPanels panels_b{static_cast<const bf16*>(packed_b.data()), ceil_div(b.num_lines, panel_lines),
                              steps * step_values};
  const std::int64_t ldc = panels_b.num_panels * panel_lines;
  Tensor c = random_tensor(DType::f32, panels_a.num_panels * panel_lines * ldc, "c");
  multiply_panels(panels_a, panels_b, steps, static_cast<float*>(c.data()), ldc, add);
  return c;
}

TEST_F(Bf16Panels, ProductsInEveryLayoutAgainstDouble) {
  struct Shape {
    std::int64_t m, n, k;
  };
  for (const Shape& shape :
       {Shape{1, 1, 1}, Shape{9, 17, 2}, Shape{33, 31, 33}, Shape{40, 65, 31}, Shape{77, 45, 1063}}) {
    for (const bool a_by_line : {false, true}) {
      for (const bool b_by_line : {false, true}) {
        for (const bool add : {false, true}) {
          SCOPED_TRACE(testing::Message() << shape.m << "x" << shape.n << "x" << shape.k << ", by line " << a_by_line
                                          << b_by_line << ", add " << add);
          const Operand a(shape.m, shape.k, a_by_line, "a");
          const Operand b(shape.n, shape.k, b_by_line, "b");
          const Tensor c = product(a, b, 0, add);
          const Tensor old = random_tensor(DType::f32, c.size(), "c");
          const std::int64_t ldc = round_up(shape.n, panel_lines);
          std::vector<double> expected;  // beyond m and n the operands are zeros
          for (std::int64_t i = 0; i < c.size(); ++i) {
            double sum = add ? old.at(i) : 0.0;
            for (std::int64_t p = 0; p < shape.k && i / ldc < shape.m && i % ldc < shape.n; ++p) {
              sum += a.at(i / ldc, p) * b.at(i % ldc, p);
            }
            expected.push_back(sum);
          }
          EXPECT_LT(relative_error(c.values(), expected), tolerance(DType::f32));
        }
      }
    }
  }
}

TEST_F(Bf16Panels, ARowHasTheSameBitsWhereverItLies) {
  const Operand a(100, 300, true, "a");
  const Operand b(70, 300, false, "b");
  const Tensor whole = product(a, b, 0, false);
  const std::size_t row_bytes = 96 * sizeof(float);
  for (const std::int64_t first : {1, 9, 31, 99}) {
    const Tensor part = product(a, b, first, false);
    for (std::int64_t row = first; row < 100; ++row) {
      EXPECT_EQ(std::memcmp(static_cast<const float*>(part.data()) + (row - first) * 96,
                            static_cast<const float*>(whole.data()) + row * 96, row_bytes),
                0)
          << "row " << row << " from " << first;
    }
  }
}

}  // namespace
}  // namespace strata::cpu::test_bf16_panels
