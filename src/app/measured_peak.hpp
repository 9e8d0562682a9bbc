#pragma once

/// @file
/// What a rank can do at most while all other ranks do it too, measured once for all points that a process runs: the
/// matrix-product rate by dtype and thread count, the denominator of MFU, and the rate of memory.

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
  /// Bytes read plus written a second by one rank's copies while all ranks copy, the mean over all. Collective.
  double memory_bytes_per_second();

 private:
  const comm::World& world_;
  std::map<std::pair<DType, int>, double> measured_;
  double memory_bytes_per_second_ = 0.0;
};

}  // namespace strata::app
