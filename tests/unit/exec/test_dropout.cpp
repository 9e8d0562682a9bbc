/// @file
/// Dropout equals its definition by RandomStream::uniform, in any slices, and backward drops what forward dropped.

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "exec/cpu/kernels/dropout.hpp"
#include "unit/exec/elements.hpp"

namespace strata::cpu::test_dropout {
namespace {

using test::random_tensor;
using test::Tensor;

const Dropout quarter{
    .probability = 0.25F, .random = {.seed = 11, .stream = stream_of("block[0].dropout")}, .first_element = 0xffffff01};

float factor_of(const Dropout& dropout, std::int64_t i) {
  return dropout.random.uniform(dropout.first_element + static_cast<std::uint64_t>(i)) < dropout.probability
             ? 0.0F
             : 1.0F / (1.0F - dropout.probability);
}

template <DType dtype>
void expect_definition(std::int64_t n) {
  const Tensor a = random_tensor(dtype, n, "a");
  const Tensor b = random_tensor(dtype, n, "b");
  Tensor y(dtype, n);
  Tensor dx(dtype, n);
  Tensor sum(dtype, n);
  test::expect_same_bits_on_any_threads([&] {
    dropout_forward(dtype, b.data(), y.data(), n, quarter);
    dropout_backward(dtype, b.data(), dx.data(), n, quarter);
    add_dropout(dtype, a.data(), b.data(), sum.data(), n, quarter);
    return y.bits() + dx.bits() + sum.bits();
  });
  EXPECT_EQ(y.bits(), dx.bits());
  std::vector<double> expected_sum;
  for (std::int64_t i = 0; i < n; ++i) {
    Tensor expected(dtype, 1);
    expected.set(0, static_cast<double>(static_cast<float>(b.at(i)) * factor_of(quarter, i)));
    ASSERT_EQ(y.at(i), expected.at(0)) << i;
    expected_sum.push_back(a.at(i) + b.at(i) * static_cast<double>(factor_of(quarter, i)));
  }
  test::expect_elements(sum, expected_sum, 1e-7, 1e-7);
}

TEST(Dropout, EqualsItsDefinition) {
  for (const std::int64_t n : {1, 5, 33, 768, 20011}) {
    expect_definition<DType::f32>(n);
    expect_definition<DType::bf16>(n);
  }
}

TEST(Dropout, SlicesSeeTheSameMask) {
  constexpr std::int64_t n = 9000;
  const Tensor x = random_tensor(DType::f32, n, "x");
  Tensor whole(DType::f32, n);
  Tensor slices(DType::f32, n);
  dropout_forward(DType::f32, x.data(), whole.data(), n, quarter);
  const std::int64_t cuts[] = {0, 1, 8, 100, 4101, 8997, n};
  for (int k = 0; k + 1 < 7; ++k) {
    Dropout part = quarter;
    part.first_element += static_cast<std::uint64_t>(cuts[k]);
    dropout_forward(DType::f32, static_cast<const float*>(x.data()) + cuts[k],
                    static_cast<float*>(slices.data()) + cuts[k], cuts[k + 1] - cuts[k], part);
  }
  EXPECT_EQ(whole.bits(), slices.bits());
}

TEST(Dropout, DropsTheShareItSays) {
  constexpr std::int64_t n = 1 << 18;
  Tensor x(DType::f32, n);
  for (std::int64_t i = 0; i < n; ++i) x.set(i, 1.0);
  dropout_forward(DType::f32, x.data(), x.data(), n, quarter);
  double sum = 0.0;
  for (const double value : x.values()) sum += value;
  // Standard deviation of the mean: √(p/(1 - p)/n) = 0.0011.
  EXPECT_NEAR(sum / static_cast<double>(n), 1.0, 5 * 0.0012);
}

TEST(Dropout, RefusesAProbabilityOfOne) {
  Tensor x = random_tensor(DType::f32, 4, "x");
  EXPECT_THROW(
      dropout_forward(DType::f32, x.data(), x.data(), 4, {.probability = 1.0F, .random = {}, .first_element = 0}),
      InternalError);
}

}  // namespace
}  // namespace strata::cpu::test_dropout
