#pragma once

/// @file
/// Instruction → a call of a CPU kernel with pointers, sizes and attributes resolved once, before the first step.

#include <functional>

#include "exec/executor.hpp"
#include "exec/kernel_arguments.hpp"
#include "ir/program.hpp"

namespace strata::cpu {

using BoundKernel = std::function<void(const StepContext&)>;

/// @param inputs must outlive the result. @throws Unsupported naming a kernel or dtype that the CPU does not have.
BoundKernel bind_kernel(const Program& program, const Arguments& arguments, InputSource& inputs, std::uint64_t seed);

/// Scratch bytes of a kernel on the CPU with the present number of OpenMP threads: a WorkspaceBytes for lower().
std::int64_t workspace_bytes(const Program& program, const Instruction& instruction);

}  // namespace strata::cpu
