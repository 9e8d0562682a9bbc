#pragma once

/// @file
/// Where elements stand that are in runs at regular distances (PermuteDims), for kernels that ask at every element.

#include <cstdint>
#include <string>

#include "base/error.hpp"
#include "exec/kernel_dims.hpp"

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

/// Element i of y stands at element at(i) of x.
class Runs {
 public:
  /// @param unit elements that are taken as one; it divides the runs and all distances. Sizes, distances and indices
  /// then count units. @throws Unsupported naming @p kernel where there are 2³¹ units or more.
  Runs(const PermuteDims& d, std::int64_t unit, const char* kernel)
      : first_(d.first / unit), run_(checked(d, unit, kernel)), num_levels_(d.num_levels) {
    for (int l = 0; l < num_levels_; ++l) {
      sizes_[l] = Divisor(d.sizes[l]);
      strides_[l] = d.strides[l] / unit;
    }
  }
  __device__ std::int64_t at(std::int64_t i) const {
    auto in_run = static_cast<std::uint32_t>(i);
    std::uint32_t rest = run_.divide(in_run);
    std::int64_t place = first_ + in_run;
    for (int l = num_levels_ - 1; l >= 0; --l) {
      std::uint32_t in_level = rest;
      rest = sizes_[l].divide(in_level);
      place += in_level * strides_[l];
    }
    return place;
  }

 private:
  static std::int64_t checked(const PermuteDims& d, std::int64_t unit, const char* kernel) {
    constexpr std::int64_t end = std::int64_t{1} << 31;
    STRATA_INVARIANT(d.run > 0 && d.elements % d.run == 0, "whole runs");
    if (d.elements / unit >= end) {
      throw Unsupported(std::string(kernel) + " of " + std::to_string(d.elements) + " elements, " +
                        std::to_string(unit) + " at a time: the CUDA kernel counts to " + std::to_string(end - 1));
    }
    return d.run / unit;
  }

  std::int64_t first_;
  Divisor run_;
  int num_levels_;
  Divisor sizes_[PermuteDims::most_levels];
  std::int64_t strides_[PermuteDims::most_levels] = {};
};

}  // namespace strata::cuda
