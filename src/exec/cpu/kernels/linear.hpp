#pragma once

/// @file
/// The linear layer y = x·Wᵀ + b and its gradients. The weight is stored [out,in], as PyTorch and llm.c store it; a
/// tied embedding [vocabulary,width] is then the head's weight as it stands. Packing for the matrix units happens
/// inside the call, in the workspace.
///
/// A slice of the layer along its input has some columns of x and dx, `row` elements from one row to the next, and the
/// weight of these columns as a matrix of its own.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.hpp"
#include "exec/kernel_dims.hpp"

namespace strata::cpu {

using strata::LinearDims;

std::int64_t linear_forward_workspace_bytes(const LinearDims& dims, bool accumulate);
std::int64_t linear_backward_input_workspace_bytes(const LinearDims& dims, bool accumulate);
std::int64_t linear_backward_weight_workspace_bytes(const LinearDims& dims, bool accumulate);

/// y[tokens,out] (+)= x[tokens,in] · Wᵀ + b. W [out,in]; b [out], null unless dims.bias, which @p accumulate excludes.
/// Sums are in f32 and rounded once.
/// @param workspace here and below: what the sibling function says, 64-byte aligned; contents are lost.
void linear_forward(const LinearDims& dims, const void* x, const void* weight, const void* bias, void* y,
                    bool accumulate, std::span<std::byte> workspace);

/// dx[tokens,in] (+)= dy[tokens,out] · W.
void linear_backward_input(const LinearDims& dims, const void* dy, const void* weight, void* dx, bool accumulate,
                           std::span<std::byte> workspace);

/// Which parameter gradients are added to what is there: not always both, where the bias is held otherwise.
struct LinearAccumulate {
  bool weight = false;
  bool bias = false;
};

/// dW[out,in] (+)= dyᵀ · x, and db[out] (+)= column sums of dy where dims.bias (null otherwise). With a bias there may
/// be no inputs.
void linear_backward_weight(const LinearDims& dims, const void* dy, const void* x, void* dweight, void* dbias,
                            const LinearAccumulate& accumulate, std::span<std::byte> workspace);

}  // namespace strata::cpu
