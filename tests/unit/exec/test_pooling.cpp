/// @file
/// Pooling against plain loops: exact, since a maximum rounds nothing; overlapping and padded windows, ties, NaN; means
/// against double.

#include <gtest/gtest.h>

#include <limits>

#include "base/error.hpp"
#include "exec/cpu/kernels/pooling.hpp"
#include "unit/exec/dense_reference.hpp"

namespace strata::cpu::test_pooling {
namespace {

using test::integer_tensor;
using test::random_tensor;
using test::relative_error;
using test::Tensor;
using test::tolerance;

struct MaxPool {
  std::vector<double> y;
  std::vector<double> dx;
};

MaxPool reference(const MaxPoolDims& dims, const Tensor& x, const Tensor& dy) {
  MaxPool result;
  result.dx.resize(static_cast<std::size_t>(x.size()));
  for (std::int64_t image = 0; image < dims.images; ++image) {
    for (std::int64_t row = 0; row < dims.out_height(); ++row) {
      for (std::int64_t col = 0; col < dims.out_width(); ++col) {
        for (std::int64_t channel = 0; channel < dims.channels; ++channel) {
          double best = -std::numeric_limits<double>::infinity();
          std::int64_t from = -1;
          for (std::int64_t h = row * dims.stride - dims.padding; h < row * dims.stride - dims.padding + dims.kernel;
               ++h) {
            for (std::int64_t w = col * dims.stride - dims.padding; w < col * dims.stride - dims.padding + dims.kernel;
                 ++w) {
              if (h < 0 || h >= dims.height || w < 0 || w >= dims.width) {
                continue;
              }
              const std::int64_t at = ((image * dims.height + h) * dims.width + w) * dims.channels + channel;
              if (x.at(at) > best) {
                best = x.at(at);
                from = at;
              }
            }
          }
          result.dx[static_cast<std::size_t>(from)] += dy.at(static_cast<std::int64_t>(result.y.size()));
          result.y.push_back(best);
        }
      }
    }
  }
  return result;
}

TEST(MaxPool, ForwardAndBackwardAreExact) {
  const MaxPoolDims shapes[] = {
      {.images = 2, .height = 8, .width = 6, .channels = 64},
      {.images = 3, .height = 7, .width = 5, .channels = 67},                                          // rows left over
      {.images = 2, .height = 9, .width = 11, .channels = 5, .kernel = 3, .stride = 2, .padding = 1},  // overlapping
      {.images = 1, .height = 6, .width = 6, .channels = 130, .kernel = 3, .stride = 1, .padding = 1},
      {.images = 1, .height = 8, .width = 8, .channels = 3, .kernel = 2, .stride = 3},  // gaps
  };
  for (MaxPoolDims dims : shapes) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      dims.dtype = dtype;
      SCOPED_TRACE(testing::Message() << dims.height << "x" << dims.width << "x" << dims.channels << " kernel "
                                      << dims.kernel << " stride " << dims.stride << " " << to_string(dtype));
      // Integers: many ties, so the rule for equals is tested, and sums of overlapping gradients are exact.
      const Tensor x = integer_tensor(dtype, dims.images * dims.height * dims.width * dims.channels, "x");
      const std::int64_t outputs = max_pool_indices_bytes(dims);
      const Tensor dy = integer_tensor(dtype, outputs, "dy");
      Tensor y(dtype, outputs);
      Tensor dx(dtype, x.size());
      std::vector<std::uint8_t> indices(static_cast<std::size_t>(outputs), 255);
      max_pool_forward(dims, x.data(), y.data(), indices.data());
      max_pool_backward(dims, dy.data(), indices.data(), dx.data());
      const MaxPool expected = reference(dims, x, dy);
      EXPECT_EQ(y.values(), expected.y);
      EXPECT_EQ(dx.values(), expected.dx);
    }
  }
}

TEST(MaxPool, NaNIsNotLost) {
  const MaxPoolDims dims{.images = 1, .height = 2, .width = 2, .channels = 1};
  for (std::int64_t place = 0; place < 4; ++place) {
    Tensor x(DType::f32, 4);
    for (std::int64_t i = 0; i < 4; ++i) {
      x.set(i, i == place ? std::numeric_limits<double>::quiet_NaN() : static_cast<double>(i));
    }
    Tensor y(DType::f32, 1);
    std::uint8_t index = 255;
    max_pool_forward(dims, x.data(), y.data(), &index);
    EXPECT_TRUE(std::isnan(y.at(0))) << place;
    EXPECT_EQ(index, place);
  }
}

TEST(MaxPool, RefusesWindowsOfPaddingAlone) {
  EXPECT_THROW(max_pool_indices_bytes({.images = 1, .height = 4, .width = 4, .channels = 1, .kernel = 2, .padding = 2}),
               InternalError);
  EXPECT_THROW(max_pool_indices_bytes({.images = 1, .height = 1, .width = 4, .channels = 1}), InternalError);
}

TEST(AveragePool, ForwardAndBackward) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t channels : {5, 64, 131}) {
      const AveragePoolDims dims{.images = 3, .positions = 49, .channels = channels, .dtype = dtype};
      const Tensor x = random_tensor(dtype, 3 * 49 * channels, "x");
      const Tensor dy = random_tensor(dtype, 3 * channels, "dy");
      Tensor y(dtype, dy.size());
      Tensor dx(dtype, x.size());
      average_pool_forward(dims, x.data(), y.data());
      average_pool_backward(dims, dy.data(), dx.data());
      std::vector<double> means(static_cast<std::size_t>(dy.size()));
      std::vector<double> gradient;
      for (std::int64_t i = 0; i < x.size(); ++i) {
        const std::int64_t out = i / (49 * channels) * channels + i % channels;
        means[static_cast<std::size_t>(out)] += x.at(i) / 49.0;
        gradient.push_back(dy.at(out) / 49.0);
      }
      EXPECT_LT(relative_error(y.values(), means), tolerance(dtype));
      EXPECT_LT(relative_error(dx.values(), gradient), tolerance(dtype));
    }
  }
}

}  // namespace
}  // namespace strata::cpu::test_pooling
