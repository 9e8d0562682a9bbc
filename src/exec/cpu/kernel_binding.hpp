#pragma once

/// @file
/// Instruction → a call of a CPU kernel with pointers, sizes and attributes resolved once, before the first step. One
/// for each set of instructions: executors go through kernel_library().

#include "exec/cpu/kernel_library.hpp"

namespace strata::cpu {

/// See KernelLibrary.
BoundKernel bind_kernel(const Program& program, const Arguments& arguments, InputSource& inputs, std::uint64_t seed,
                        const Numerics& numerics);

std::int64_t workspace_bytes(const Program& program, const Instruction& instruction, const Numerics& numerics);

std::string_view convolution_method(const Program& program, const Instruction& instruction, const Numerics& numerics);

}  // namespace strata::cpu
