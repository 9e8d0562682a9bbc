#pragma once

/// @file
/// The CPU's kernels as a table of functions: what is compiled with vector instructions is reached through it alone,
/// and there is one such table for each set of instructions.

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "base/dtype.hpp"
#include "exec/cpu/numerics.hpp"
#include "exec/executor.hpp"
#include "exec/kernel_arguments.hpp"
#include "exec/product_rates.hpp"
#include "ir/program/program.hpp"

namespace strata::cpu {

using BoundKernel = std::function<void(const StepContext&)>;

struct KernelLibrary {
  /// Instruction → a call of a kernel. The inputs must outlive the result.
  /// @throws Unsupported naming a kernel or dtype that the CPU does not have.
  BoundKernel (*bind_kernel)(const Program& program, const Arguments& arguments, InputSource& inputs,
                             std::uint64_t seed, const Numerics& numerics);
  /// Scratch bytes of a kernel with the present number of OpenMP threads.
  std::int64_t (*workspace_bytes)(const Program& program, const Instruction& instruction, const Numerics& numerics);
  /// "winograd" or "direct", by what a convolution or a gradient of one is made; empty for all else.
  std::string_view (*convolution_method)(const Program& program, const Instruction& instruction,
                                         const Numerics& numerics);
  /// See kernels/elementwise.hpp.
  void (*cast)(DType from, const void* x, DType to, void* y, std::int64_t n);
  /// See gemm_peak.hpp.
  ProductRates (*measure_product_rates)(DType dtype, std::span<const std::int64_t> sizes, double budget_seconds);
  /// See memory_rate.hpp.
  double (*measure_memory_bytes_per_second)();
  /// "native", or "f32" where bf16 operands are multiplied as f32 copies (kernels/f32_copy.hpp).
  std::string_view (*bf16_products)();
};

/// The one for instruction_set().
const KernelLibrary& kernel_library();

/// A WorkspaceBytes for lower().
inline auto workspaces_of(const Numerics& numerics) {
  return [numerics](const Program& program, const Instruction& instruction) {
    return kernel_library().workspace_bytes(program, instruction, numerics);
  };
}

}  // namespace strata::cpu
