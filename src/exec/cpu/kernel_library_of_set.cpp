/// @file
/// The table of the kernels that were compiled for one set of instructions. Compiled once for each, as the kernels are.

#include "exec/cpu/gemm_peak.hpp"
#include "exec/cpu/kernel_binding.hpp"
#include "exec/cpu/kernel_library.hpp"
#include "exec/cpu/kernels/elementwise.hpp"
#include "exec/cpu/kernels/f32_copy.hpp"
#include "exec/cpu/memory_rate.hpp"

namespace strata::cpu {
namespace {

std::string_view bf16_products() { return dnnl_takes_bf16() ? "native" : "f32"; }

}  // namespace

extern "C" [[gnu::visibility("default")]] const KernelLibrary STRATA_ENTRY;
const KernelLibrary STRATA_ENTRY = {
    .bind_kernel = bind_kernel,
    .workspace_bytes = workspace_bytes,
    .convolution_method = convolution_method,
    .cast = cast,
    .measure_product_rates = measure_product_rates,
    .measure_memory_bytes_per_second = measure_memory_bytes_per_second,
    .bf16_products = bf16_products,
};

}  // namespace strata::cpu
