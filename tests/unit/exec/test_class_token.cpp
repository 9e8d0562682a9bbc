/// @file
/// A class token in front of an image's rows, and the first row alone, against plain loops: exact on small integers.

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "exec/cpu/kernels/class_token.hpp"
#include "unit/exec/elements.hpp"

namespace strata::cpu::test_class_token {
namespace {

using test::integer_tensor;
using test::Tensor;

struct ClassTokenValues {
  std::vector<double> y, dx, dtoken, dpositions;
};

ClassTokenValues by_loops(const ClassTokenDims& d, const Tensor& x, const Tensor& token, const Tensor& positions,
                          const Tensor& dy) {
  const std::int64_t tokens = d.positions + 1;
  ClassTokenValues values{.y = {},
                          .dx = std::vector<double>(static_cast<std::size_t>(x.size())),
                          .dtoken = std::vector<double>(static_cast<std::size_t>(d.channels)),
                          .dpositions = std::vector<double>(static_cast<std::size_t>(tokens * d.channels))};
  for (std::int64_t image = 0; image < d.images; ++image) {
    for (std::int64_t row = 0; row < tokens; ++row) {
      for (std::int64_t c = 0; c < d.channels; ++c) {
        const double gradient = dy.at((image * tokens + row) * d.channels + c);
        const std::int64_t at = (image * d.positions + row - 1) * d.channels + c;
        values.y.push_back((row == 0 ? token.at(c) : x.at(at)) + positions.at(row * d.channels + c));
        values.dpositions[static_cast<std::size_t>(row * d.channels + c)] += gradient;
        (row == 0 ? values.dtoken[static_cast<std::size_t>(c)] : values.dx[static_cast<std::size_t>(at)]) += gradient;
      }
    }
  }
  return values;
}

TEST(ClassToken, ForwardAndBackwardAreExactOnAnyThreads) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t channels : {1, 16, 37, 131}) {
      for (const std::int64_t positions : {1, 9, 20}) {
        const ClassTokenDims dims{.images = 3, .positions = positions, .channels = channels, .dtype = dtype};
        const std::int64_t rows = positions + 1;
        const Tensor x = integer_tensor(dtype, 3 * positions * channels, "x");
        const Tensor token = integer_tensor(dtype, channels, "token");
        const Tensor table = integer_tensor(dtype, rows * channels, "positions");
        const Tensor dy = integer_tensor(dtype, 3 * rows * channels, "dy");
        const ClassTokenValues expected = by_loops(dims, x, token, table, dy);
        test::expect_same_bits_on_any_threads([&] {
          Tensor y(dtype, 3 * rows * channels);
          Tensor dx(dtype, x.size());
          Tensor dtoken(DType::f32, channels);
          Tensor dpositions(DType::f32, rows * channels);
          class_token_forward(dims, x.data(), token.data(), table.data(), y.data());
          class_token_backward(
              dims, {.dy = dy.data(), .dx = dx.data(), .dtoken = dtoken.data(), .dpositions = dpositions.data()}, {});
          EXPECT_EQ(y.values(), expected.y);
          EXPECT_EQ(dx.values(), expected.dx);
          EXPECT_EQ(dtoken.values(), expected.dtoken);
          EXPECT_EQ(dpositions.values(), expected.dpositions);
          return y.bits() + dx.bits() + dtoken.bits() + dpositions.bits();
        });
      }
    }
  }
}

/// Each of the two by itself, in both dtypes that gradients have.
TEST(ClassToken, GradientsAreAddedToWhereAsked) {
  for (const DType gradient : {DType::f32, DType::bf16}) {
    for (const bool add_token : {false, true}) {
      for (const bool add_positions : {false, true}) {
        const ClassTokenDims dims{
            .images = 2, .positions = 6, .channels = 19, .dtype = DType::bf16, .gradient_dtype = gradient};
        const Tensor x = integer_tensor(DType::bf16, 2 * 6 * 19, "x");
        const Tensor dy = integer_tensor(DType::bf16, 2 * 7 * 19, "dy");
        const Tensor old_token = integer_tensor(gradient, 19, "old token");
        const Tensor old_positions = integer_tensor(gradient, 7 * 19, "old positions");
        Tensor dx(DType::bf16, x.size());
        Tensor dtoken = integer_tensor(gradient, 19, "old token");
        Tensor dpositions = integer_tensor(gradient, 7 * 19, "old positions");
        class_token_backward(
            dims, {.dy = dy.data(), .dx = dx.data(), .dtoken = dtoken.data(), .dpositions = dpositions.data()},
            {add_token, add_positions});
        ClassTokenValues expected = by_loops(dims, x, old_token, old_positions, dy);
        for (std::int64_t i = 0; add_token && i < dtoken.size(); ++i) {
          expected.dtoken[static_cast<std::size_t>(i)] += old_token.at(i);
        }
        for (std::int64_t i = 0; add_positions && i < dpositions.size(); ++i) {
          expected.dpositions[static_cast<std::size_t>(i)] += old_positions.at(i);
        }
        EXPECT_EQ(dtoken.values(), expected.dtoken);
        EXPECT_EQ(dpositions.values(), expected.dpositions);
      }
    }
  }
}

TEST(ClassToken, RefusesNoRows) {
  float value = 0.0F;
  EXPECT_THROW(class_token_forward({.images = 1, .positions = 0, .channels = 1}, &value, &value, &value, &value),
               InternalError);
}

TEST(FirstRow, IsTakenAndGivenBack) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t width : {1, 16, 37}) {
      for (const std::int64_t sequence : {1, 5}) {
        const FirstRowDims dims{.samples = 3, .sequence = sequence, .width = width, .dtype = dtype};
        const Tensor x = integer_tensor(dtype, 3 * sequence * width, "x");
        const Tensor dy = integer_tensor(dtype, 3 * width, "dy");
        Tensor y(dtype, dy.size());
        Tensor dx = integer_tensor(dtype, x.size(), "overwritten");
        first_row_forward(dims, x.data(), y.data());
        first_row_backward(dims, dy.data(), dx.data());
        for (std::int64_t i = 0; i < x.size(); ++i) {
          const std::int64_t row = i / width % sequence, in_rows = i / width / sequence * width + i % width;
          if (row == 0) {
            EXPECT_EQ(y.at(in_rows), x.at(i));
          }
          EXPECT_EQ(dx.at(i), row == 0 ? dy.at(in_rows) : 0.0);
        }
      }
    }
  }
}

}  // namespace
}  // namespace strata::cpu::test_class_token
