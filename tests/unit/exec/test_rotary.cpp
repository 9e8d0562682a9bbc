/// @file
/// Rotary embedding against double; backward is the inverse rotation; in place and strided.

#include <gtest/gtest.h>

#include "exec/cpu/kernels/rotary.hpp"
#include "unit/exec/elements.hpp"

namespace strata::cpu::test_rotary {
namespace {

using test::random_tensor;
using test::Tensor;

std::vector<double> rotated(const RotaryDims& dims, const Tensor& x, double direction) {
  std::vector<double> y = x.values();
  const std::int64_t half = dims.head_dim / 2;
  const std::int64_t row = (dims.num_heads + dims.num_copied_heads) * dims.head_dim;
  for (std::int64_t token = 0; token < dims.batch * dims.seq; ++token) {
    const auto position = static_cast<double>(dims.first_position + token % dims.seq);
    for (std::int64_t head = 0; head < dims.num_heads; ++head) {
      for (std::int64_t i = 0; i < half; ++i) {
        const double angle = direction * position *
                             std::pow(dims.theta, -2.0 * static_cast<double>(i) / static_cast<double>(dims.head_dim));
        const std::int64_t at = token * row + head * dims.head_dim + i;
        const double a = x.at(at);
        const double b = x.at(at + half);
        y[static_cast<std::size_t>(at)] = a * std::cos(angle) - b * std::sin(angle);
        y[static_cast<std::size_t>(at + half)] = b * std::cos(angle) + a * std::sin(angle);
      }
    }
  }
  return y;
}

TEST(Rotary, ForwardAndBackwardAgainstDouble) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t head_dim : {2, 6, 24, 64}) {
      for (const std::int64_t seq : {1, 7, 33}) {
        const RotaryDims dims{.batch = 2,
                              .seq = seq,
                              .num_heads = 3,
                              .num_copied_heads = 2,
                              .head_dim = head_dim,
                              .dtype = dtype,
                              .theta = 500.0,
                              .first_position = 11};
        const std::int64_t row = 5 * head_dim;
        const Tensor x = random_tensor(dtype, 2 * seq * row, "x");
        Tensor y(dtype, x.size());
        rotary_forward(dims, {x.data(), row}, {y.data(), row});
        test::expect_elements(y, rotated(dims, x, 1.0), 1e-6, 1e-6 + test::unit_roundoff(dtype) * 0.01);
        rotary_backward(dims, {x.data(), row}, {y.data(), row});
        test::expect_elements(y, rotated(dims, x, -1.0), 1e-6, 1e-6 + test::unit_roundoff(dtype) * 0.01);
      }
    }
  }
}

TEST(Rotary, InPlaceAndOnAnyThreadsTheSameBits) {
  const RotaryDims dims{.batch = 3, .seq = 50, .num_heads = 4, .num_copied_heads = 1, .head_dim = 20};
  const Tensor x = random_tensor(DType::f32, 3 * 50 * 100, "x");
  Tensor y(DType::f32, x.size());
  test::expect_same_bits_on_any_threads([&] {
    rotary_forward(dims, {x.data(), 100}, {y.data(), 100});
    return y.bits();
  });
  Tensor in_place = random_tensor(DType::f32, x.size(), "x");
  rotary_forward(dims, {in_place.data(), 100}, {in_place.data(), 100});
  EXPECT_EQ(in_place.bits(), y.bits());
}

TEST(Rotary, BackwardUndoesForward) {
  const RotaryDims dims{.batch = 1, .seq = 9, .num_heads = 2, .head_dim = 8};
  const Tensor x = random_tensor(DType::f32, 9 * 16, "x");
  Tensor y(DType::f32, x.size());
  rotary_forward(dims, {x.data(), 16}, {y.data(), 16});
  rotary_backward(dims, {y.data(), 16}, {y.data(), 16});
  test::expect_elements(y, x.values(), 1e-6, 1e-6);
}

}  // namespace
}  // namespace strata::cpu::test_rotary
