#pragma once

/// @file
/// Scratch bytes of kernels on a GPU: a pure function of the instruction and of how kernels are to compute, so that
/// memory is planned without a GPU.
/// Libraries are held to these sizes: they choose among algorithms that fit.

#include <cstdint>

#include "exec/device/numerics.hpp"
#include "exec/kernel_dims.hpp"
#include "ir/program/program.hpp"

namespace strata::cuda {

/// cuBLASLt's own recommendation for Hopper.
constexpr std::int64_t matmul_workspace_bytes = std::int64_t{32} << 20;
/// Of each cuDNN convolution: its own, and a copy of the images whose channels are filled up to a multiple of eight,
/// which tensor cores need.
std::int64_t convolution_workspace_bytes(const ConvolutionDims& dims);
/// Partial results of sums over a tensor; their order, and so their bits, depend on the number of elements alone.
constexpr std::int64_t max_sum_blocks = 1024;
/// Blocks of rows that column sums are cut into.
constexpr std::int64_t max_row_blocks = 256;

constexpr std::int64_t num_row_blocks(std::int64_t rows) { return rows < max_row_blocks ? rows : max_row_blocks; }
/// Rows [begin(block), begin(block + 1)).
constexpr std::int64_t row_block_begin(std::int64_t rows, std::int64_t block) {
  return rows * block / num_row_blocks(rows);
}

/// @throws Unsupported where kernels asked for by name cannot serve.
std::int64_t workspace_bytes(const Program& program, const Instruction& instruction, const Numerics& numerics);

/// A WorkspaceBytes for lower().
inline auto workspaces_of(const Numerics& numerics) {
  return [numerics](const Program& program, const Instruction& instruction) {
    return workspace_bytes(program, instruction, numerics);
  };
}

}  // namespace strata::cuda
