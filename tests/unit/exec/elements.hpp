#pragma once

/// @file
/// Comparisons element by element, for kernels whose every output has an error bound of its own, and runs on a given
/// number of threads.

#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "unit/exec/dense_reference.hpp"

namespace strata::test {

/// Half a unit in the last place, relative: what rounding a result to its type costs.
inline double unit_roundoff(DType dtype) { return dtype == DType::f32 ? 0x1p-24 : 0x1p-8; }

/// |actual - expected| ≤ (unit_roundoff + relative)·|expected| + absolute for every element.
inline void expect_elements(const Tensor& actual, const std::vector<double>& expected, double relative,
                            double absolute) {
  ASSERT_EQ(actual.size(), static_cast<std::int64_t>(expected.size()));
  for (std::int64_t i = 0; i < actual.size(); ++i) {
    const double e = expected[static_cast<std::size_t>(i)];
    const double bound = (unit_roundoff(actual.dtype()) + relative) * std::abs(e) + absolute;
    ASSERT_LE(std::abs(actual.at(i) - e), bound) << "element " << i << ": " << actual.at(i) << " for " << e;
  }
}

/// Calls body() with @p num_threads OpenMP threads.
template <typename Body>
auto with_threads(int num_threads, Body&& body) {
  const int before = omp_get_max_threads();
  omp_set_num_threads(num_threads);
  auto result = body();
  omp_set_num_threads(before);
  return result;
}

/// body() returns bits; they must not depend on the number of threads.
template <typename Body>
void expect_same_bits_on_any_threads(Body&& body) {
  const auto one = with_threads(1, body);
  EXPECT_EQ(one, with_threads(2, body));
  EXPECT_EQ(one, with_threads(5, body));
}

}  // namespace strata::test
