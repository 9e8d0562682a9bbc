/// @file
/// Rates of an emulated GPU: it has no clock, so these are what it is said to do.

#include "exec/cuda_backend.hpp"

namespace strata::cuda {

double measure_gemm_peak_flops(DType, const Numerics&) { return 1e9; }
double measure_memory_bytes_per_second() { return 1e9; }

}  // namespace strata::cuda
