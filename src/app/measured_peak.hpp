#pragma once

/// @file
/// What a rank's device can do at most while all other ranks do it too, measured once for all points that a process
/// runs: the matrix-product rate by dtype and thread count, the denominator of MFU, and the rate of memory.

#include <map>
#include <tuple>

#include "base/dtype.hpp"
#include "comm/world.hpp"

namespace strata::app {

class MeasuredPeak {
 public:
  explicit MeasuredPeak(const comm::World& world) : world_(world) {}

  /// FLOP/s of one rank, the mean over all. Collective. @param on_gpus on the selected ones, by as many host threads.
  double flops_per_second(bool on_gpus, DType dtype, int num_threads);
  static const char* source(bool on_gpus);
  /// Bytes read plus written a second by one rank's copies while all ranks copy, the mean over all. Collective.
  double memory_bytes_per_second(bool on_gpus);

 private:
  const comm::World& world_;
  std::map<std::tuple<bool, DType, int>, double> measured_;
  std::map<bool, double> memory_bytes_per_second_;
};

}  // namespace strata::app
