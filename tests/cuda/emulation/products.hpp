#pragma once

/// @file
/// cuBLASLt of the emulation: which kernels its heuristic names for a product. All of them compute the definition, in
/// f32, rounded once.

#include <cstdint>
#include <vector>

namespace emulation {

struct ProductKernel {
  float milliseconds = 0.0F;  ///< by the device's events
  bool refuses = false;       ///< although it was named
};
/// For all products from now on, the first one the fastest by the heuristic's account; by default there is one.
void name_product_kernels(std::vector<ProductKernel> kernels);
/// Products that each of those named last has computed.
std::vector<std::int64_t> num_products();

}  // namespace emulation
