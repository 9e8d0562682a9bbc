#pragma once

/// @file
/// Division where a kernel divides at every element: the GPU has no instruction for it.

#include <cstdint>
#include <string>

#include "base/error.hpp"

namespace strata::cuda {

/// Division by a number that is known at the launch: a multiplication and a shift. Source: Granlund, Montgomery,
/// Division by invariant integers using multiplication, 1994, fig. 4.1; the sum cannot overflow below 2³¹.
class Divisor {
 public:
  Divisor() = default;
  /// @param value in [1, 2³¹).
  explicit Divisor(std::int64_t value) : value_(static_cast<std::uint32_t>(value)) {
    while ((std::uint64_t{1} << shift_) < value_) ++shift_;
    const std::uint64_t above = (std::uint64_t{1} << shift_) - value_;
    factor_ = static_cast<std::uint32_t>((above << 32U) / value_ + 1);
  }
  /// @p n in [0, 2³¹) becomes the rest of its division.
  __device__ std::uint32_t divide(std::uint32_t& n) const {
    const auto high = static_cast<std::uint32_t>((std::uint64_t{n} * factor_) >> 32U);
    const std::uint32_t quotient = (high + n) >> shift_;
    n -= quotient * value_;
    return quotient;
  }

 private:
  std::uint32_t value_ = 1;
  std::uint32_t factor_ = 1;
  std::uint32_t shift_ = 0;
};

/// @throws Unsupported naming @p kernel where @p count items are 2³¹ or more.
inline void check_count(std::int64_t count, const char* kernel) {
  constexpr std::int64_t end = std::int64_t{1} << 31;
  if (count < end) return;
  throw Unsupported(std::string(kernel) + ": " + std::to_string(count) + " items: the CUDA kernel counts to " +
                    std::to_string(end - 1));
}

}  // namespace strata::cuda
