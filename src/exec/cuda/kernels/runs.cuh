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
  /// @param unit elements that are taken as one, of which runs, distances and periods consist. Distances and indices
  /// then count units. @throws Unsupported naming @p kernel where there are 2³¹ units or more.
  Runs(const PermuteDims& d, std::int64_t unit, const char* kernel)
      : first_(d.first / unit), num_levels_(d.num_levels) {
    STRATA_INVARIANT(d.comes_in(unit), "runs of whole units");
    check_count(d.elements / unit, kernel);
    for (int l = 0; l < num_levels_; ++l) {
      periods_[l] = Divisor(d.period(l) / unit);
      strides_[l] = d.strides[l] / unit;
    }
  }
  __device__ std::int64_t at(std::int64_t i) const {
    auto rest = static_cast<std::uint32_t>(i);
    std::int64_t place = first_;
    for (int l = 0; l < num_levels_; ++l) place += periods_[l].divide(rest) * strides_[l];
    return place + rest;
  }

 private:
  std::int64_t first_;
  int num_levels_;
  Divisor periods_[PermuteDims::most_levels];
  std::int64_t strides_[PermuteDims::most_levels] = {};
};

}  // namespace strata::cuda
