#pragma once

/// @file
/// What a rank's device can do at most while all other ranks do it too, measured once for all points that a process
/// runs: the matrix-product rate by dtype and thread count, the denominator of MFU, and the rate of memory.

#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "base/dtype.hpp"
#include "comm/world.hpp"
#include "config/experiment.hpp"
#include "exec/product_rates.hpp"

namespace strata::profile {

class MeasuredPeak {
 public:
  explicit MeasuredPeak(const comm::World& world) : world_(world) {}

  /// Of one rank of the experiment's device and threads, the mean over all. Collective.
  ProductRates product_rates(const Experiment& experiment, DType dtype);
  /// The best of these, FLOP/s.
  double flops_per_second(const Experiment& experiment, DType dtype) { return product_rates(experiment, dtype).best; }
  /// How it is found.
  static std::string source(const Experiment& experiment);
  /// Bytes read plus written a second by one rank's copies while all ranks copy, the mean over all. Collective.
  double memory_bytes_per_second(bool on_gpus);

 private:
  const comm::World& world_;
  /// By device, dtype, threads, tf32, determinism, timed products and the smallest of the products' sizes.
  std::map<std::tuple<bool, DType, std::int64_t, bool, bool, bool, std::int64_t>, ProductRates> measured_;
  std::map<bool, double> memory_bytes_per_second_;
};

}  // namespace strata::profile
