#pragma once

/// @file
/// Where elements stand that are in runs at regular distances (PermuteDims), for kernels that ask at every element.

#include <cstdint>

#include "base/error.hpp"
#include "exec/cuda/kernels/divisor.cuh"
#include "exec/kernel_dims.hpp"

namespace strata::cuda {

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
    STRATA_INVARIANT(d.run > 0 && d.elements % d.run == 0, "whole runs");
    check_count(d.elements / unit, kernel);
    return d.run / unit;
  }

  std::int64_t first_;
  Divisor run_;
  int num_levels_;
  Divisor sizes_[PermuteDims::most_levels];
  std::int64_t strides_[PermuteDims::most_levels] = {};
};

}  // namespace strata::cuda
