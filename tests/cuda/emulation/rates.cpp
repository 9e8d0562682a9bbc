/// @file
/// Rates of an emulated GPU: it has no clock, so these are what it is said to do.

#include "exec/cuda_backend.hpp"

namespace strata::cuda {

ProductRates measure_product_rates(DType, const Numerics&) { return {.best = 1e9, .sustained = 8e8}; }
double measure_memory_bytes_per_second() { return 1e9; }

}  // namespace strata::cuda
