#include "exec/cuda/libraries.hpp"

#include <fmt/core.h>

#include "base/error.hpp"

namespace strata::cuda {

Libraries::Libraries(const Numerics& numerics) : numerics_(numerics) {
  check(cublasLtCreate(&blas_), "cublasLtCreate");
}

Libraries::~Libraries() {
  attention_plans_.clear();  // they are the handle's
  // Nothing can be done about a failure here.
  if (dnn_ != nullptr) static_cast<void>(cudnnDestroy(dnn_));
  static_cast<void>(cublasLtDestroy(blas_));
}

cudnnHandle_t Libraries::dnn() {
  if (dnn_ == nullptr) check(cudnnCreate(&dnn_), "cudnnCreate");
  return dnn_;
}

void check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw InternalError(fmt::format("cuBLASLt: {}: {}", what, cublasLtGetStatusString(status)));
}

void check(cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw InternalError(fmt::format("cuDNN: {}: {}", what, cudnnGetErrorString(status)));
}

cudaDataType_t cuda_type(DType dtype) {
  STRATA_INVARIANT(dtype == DType::f32 || dtype == DType::bf16, "products are of f32 or bf16");
  return dtype == DType::f32 ? CUDA_R_32F : CUDA_R_16BF;
}

cudnnDataType_t cudnn_type(DType dtype) {
  STRATA_INVARIANT(dtype == DType::f32 || dtype == DType::bf16, "convolutions are of f32 or bf16");
  return dtype == DType::f32 ? CUDNN_DATA_FLOAT : CUDNN_DATA_BFLOAT16;
}

}  // namespace strata::cuda
