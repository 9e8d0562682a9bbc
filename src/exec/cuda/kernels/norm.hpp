#pragma once

/// @file
/// Layer, RMS and batch normalisation, and sums over rows. Contracts are those of the CPU kernels of the same names;
/// calls are queued on @p stream. @p workspace is what workspace_bytes() says of the instruction.

#include <cuda_runtime_api.h>

#include "exec/kernel_dims.hpp"
#include "exec/kernel_operands.hpp"

namespace strata::cuda {

/// What is added to x before a norm; sum, which is the norm's input then, may be x or rows.
struct AddedRows {
  const void* rows = nullptr;  ///< [rows,width]; null: nothing
  void* sum = nullptr;         ///< [rows,width]
};

void layer_norm_forward(const LayerNormDims& dims, const void* x, const void* weight, const void* bias, void* y,
                        float* statistics, cudaStream_t stream, const AddedRows& added = {});
/// @throws Unsupported where two f32 rows exceed the shared memory of a multiprocessor.
void layer_norm_backward(const LayerNormDims& dims, const LayerNormBackwardOperands& operands,
                         const LayerNormAccumulate& accumulate, float* workspace, cudaStream_t stream);

void rms_norm_forward(const RmsNormDims& dims, const void* x, const void* weight, void* y, float* statistics,
                      cudaStream_t stream, const AddedRows& added = {});
void rms_norm_backward(const RmsNormDims& dims, const RmsNormBackwardOperands& operands,
                       const RmsNormAccumulate& accumulate, float* workspace, cudaStream_t stream);

/// @param statistics [2, channels]: mean, then inverse deviation.
void batch_norm_forward(const BatchNormDims& dims, const BatchNormOperands& operands, float* statistics,
                        float* workspace, cudaStream_t stream);
void batch_norm_backward(const BatchNormDims& dims, const BatchNormBackwardOperands& operands, bool accumulate,
                         float* workspace, cudaStream_t stream);
void update_running_statistics(const BatchNormDims& dims, const float* statistics, float decay, float weight,
                               const RunningStatistics& running, cudaStream_t stream);
void batch_norm_inference(const BatchNormDims& dims, const BatchNormOperands& operands,
                          const RunningStatistics& running, cudaStream_t stream);

/// sums[columns] (+)= column sums of matrix[rows, columns]; workspace: num_row_blocks(rows) · columns floats.
void column_sums(const ColumnSumsDims& dims, const void* matrix, void* sums, bool accumulate, float* workspace,
                 cudaStream_t stream);
/// matrix[rows, columns] += bias[columns].
void add_bias(DType dtype, void* matrix, const void* bias, std::int64_t rows, std::int64_t columns,
              cudaStream_t stream);

}  // namespace strata::cuda
