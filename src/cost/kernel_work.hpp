#pragma once

/// @file
/// What a kernel's time depends on, read off an instruction: arithmetic, bytes that cross the memory bus, and the sizes
/// by which measured times are looked up.

#include <cstdint>
#include <string>
#include <vector>

#include "ir/program/program.hpp"

namespace strata {

/// Every operand read or written once: input and output bytes. An output that is added to is read too.
std::int64_t bytes_touched(const Program& program, const Instruction& instruction);

/// The type the arithmetic is done in: that of the first operand that is f32 or bf16; f32 where there is none.
DType compute_dtype(const Program& program, const Instruction& instruction);

/// Kernels of one kind whose times may be interpolated into each other, and where among them this one stands.
struct KernelShape {
  std::string kind;  ///< name, dtype and what is no size: "linear_forward bf16", "max_pool_forward f32 kernel=2"
  std::vector<double> sizes;  ///< in the order of the attributes; equal in number for equal kinds
  double work = 0.0;          ///< FLOPs where the kernel counts any, else bytes touched
};
/// Positions in the batch, random seeds and hyperparameters are left out: no time depends on them.
KernelShape kernel_shape(const Program& program, const Instruction& instruction);

}  // namespace strata
