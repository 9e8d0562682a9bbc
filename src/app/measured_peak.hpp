#pragma once

/// @file
/// The denominator of MFU: the matrix-product rate of a rank while all other ranks compute too, measured once a dtype
/// and thread count for all points that a process runs.

#include <map>
#include <utility>

#include "base/dtype.hpp"
#include "comm/world.hpp"

namespace strata::app {

class MeasuredPeak {
 public:
  explicit MeasuredPeak(const comm::World& world) : world_(world) {}

  /// FLOP/s of one rank, the mean over all. Collective.
  double flops_per_second(DType dtype, int num_threads);
  static const char* source();

 private:
  const comm::World& world_;
  std::map<std::pair<DType, int>, double> measured_;
};

}  // namespace strata::app
