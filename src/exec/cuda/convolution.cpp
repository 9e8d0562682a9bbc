#include "exec/cuda/convolution.hpp"

#include <fmt/core.h>

#include <array>

#include "base/error.hpp"
#include "exec/device/workspace.hpp"

namespace strata::cuda {
namespace {

int as_int(std::int64_t value) {
  STRATA_INVARIANT(value >= 0 && value < (std::int64_t{1} << 31), "cuDNN counts in 32 bits");
  return static_cast<int>(value);
}

/// The fastest of cuDNN's candidates, which come fastest first. The three result types have equal fields.
template <typename Result>
const Result& fastest(std::span<const Result> candidates, bool deterministic, cudnnMathType_t math,
                      const ConvolutionDims& d) {
  for (const Result& candidate : candidates) {
    if (candidate.status != CUDNN_STATUS_SUCCESS) continue;
    if (candidate.memory > static_cast<std::size_t>(convolution_workspace_bytes)) continue;
    if (deterministic && candidate.determinism != CUDNN_DETERMINISTIC) continue;
    // FMA arithmetic was asked for where f32 must stay f32: a candidate that may use tensor cores (TF32) is none.
    if (math == CUDNN_FMA_MATH && candidate.mathType != CUDNN_FMA_MATH) continue;
    return candidate;
  }
  throw Unsupported(fmt::format("cuDNN has no{} convolution of {} x {}x{}x{} to {} channels in {} within {} bytes",
                                deterministic ? " deterministic" : "", d.images, d.height, d.width, d.in, d.out,
                                to_string(d.dtype), convolution_workspace_bytes));
}

}  // namespace

Convolution::Convolution(Libraries& libraries, Pass pass, const ConvolutionDims& d, std::span<std::byte> workspace)
    : libraries_(libraries), workspace_(workspace.data()) {
  STRATA_INVARIANT(static_cast<std::int64_t>(workspace.size()) >= convolution_workspace_bytes,
                   "a convolution's workspace");
  STRATA_INVARIANT(!d.relu, "a kernel of its own applies ReLU");
  const cudnnDataType_t type = cudnn_type(d.dtype);
  check(cudnnCreateTensorDescriptor(&x_), "cudnnCreateTensorDescriptor");
  check(cudnnCreateTensorDescriptor(&y_), "cudnnCreateTensorDescriptor");
  check(cudnnCreateFilterDescriptor(&weight_), "cudnnCreateFilterDescriptor");
  check(cudnnCreateConvolutionDescriptor(&convolution_), "cudnnCreateConvolutionDescriptor");
  // Extents in the order n, c, h, w whatever the layout.
  check(cudnnSetTensor4dDescriptor(x_, CUDNN_TENSOR_NHWC, type, as_int(d.images), as_int(d.in), as_int(d.height),
                                   as_int(d.width)),
        "cudnnSetTensor4dDescriptor");
  check(cudnnSetTensor4dDescriptor(y_, CUDNN_TENSOR_NHWC, type, as_int(d.images), as_int(d.out), as_int(d.out_height()),
                                   as_int(d.out_width())),
        "cudnnSetTensor4dDescriptor");
  check(cudnnSetFilter4dDescriptor(weight_, type, CUDNN_TENSOR_NHWC, as_int(d.out), as_int(d.in), as_int(d.kernel_h),
                                   as_int(d.kernel_w)),
        "cudnnSetFilter4dDescriptor");
  check(cudnnSetConvolution2dDescriptor(convolution_, as_int(d.padding), as_int(d.padding), as_int(d.stride),
                                        as_int(d.stride), 1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
        "cudnnSetConvolution2dDescriptor");
  choose(pass, d);
}

Convolution::~Convolution() {
  static_cast<void>(cudnnDestroyConvolutionDescriptor(convolution_));
  static_cast<void>(cudnnDestroyFilterDescriptor(weight_));
  static_cast<void>(cudnnDestroyTensorDescriptor(y_));
  static_cast<void>(cudnnDestroyTensorDescriptor(x_));
}

void Convolution::choose(Pass pass, const ConvolutionDims& d) {
  const bool deterministic = libraries_.numerics().deterministic;
  const cudnnMathType_t math =
      d.dtype == DType::f32 && !libraries_.numerics().tf32 ? CUDNN_FMA_MATH : CUDNN_TENSOR_OP_MATH;
  check(cudnnSetConvolutionMathType(convolution_, math), "cudnnSetConvolutionMathType");
  constexpr int most = 16;
  int found = 0;
  const auto take = [&](const auto& candidates) {
    using Result = std::remove_cvref_t<decltype(candidates.front())>;
    const Result& chosen =
        fastest<Result>(std::span(candidates).first(static_cast<std::size_t>(found)), deterministic, math, d);
    // What is checked for is what runs.
    check(cudnnSetConvolutionMathType(convolution_, chosen.mathType), "cudnnSetConvolutionMathType");
    algorithm_ = static_cast<int>(chosen.algo);
    algorithm_bytes_ = chosen.memory;
  };
  switch (pass) {
    case Pass::forward: {
      std::array<cudnnConvolutionFwdAlgoPerf_t, most> candidates{};
      check(cudnnGetConvolutionForwardAlgorithm_v7(libraries_.dnn(), x_, weight_, convolution_, y_, most, &found,
                                                   candidates.data()),
            "cudnnGetConvolutionForwardAlgorithm_v7");
      take(candidates);
      return;
    }
    case Pass::backward_input: {
      std::array<cudnnConvolutionBwdDataAlgoPerf_t, most> candidates{};
      check(cudnnGetConvolutionBackwardDataAlgorithm_v7(libraries_.dnn(), weight_, y_, convolution_, x_, most, &found,
                                                        candidates.data()),
            "cudnnGetConvolutionBackwardDataAlgorithm_v7");
      take(candidates);
      return;
    }
    case Pass::backward_weight: {
      std::array<cudnnConvolutionBwdFilterAlgoPerf_t, most> candidates{};
      check(cudnnGetConvolutionBackwardFilterAlgorithm_v7(libraries_.dnn(), x_, y_, convolution_, weight_, most, &found,
                                                          candidates.data()),
            "cudnnGetConvolutionBackwardFilterAlgorithm_v7");
      take(candidates);
      return;
    }
  }
}

void Convolution::forward(const void* x, const void* weight, void* y, cudaStream_t stream) const {
  const float one = 1.0F;
  const float zero = 0.0F;
  check(cudnnSetStream(libraries_.dnn(), stream), "cudnnSetStream");
  check(cudnnConvolutionForward(libraries_.dnn(), &one, x_, x, weight_, weight, convolution_,
                                static_cast<cudnnConvolutionFwdAlgo_t>(algorithm_), workspace_, algorithm_bytes_, &zero,
                                y_, y),
        "cudnnConvolutionForward");
}

void Convolution::backward_input(const void* dy, const void* weight, void* dx, cudaStream_t stream) const {
  const float one = 1.0F;
  const float zero = 0.0F;
  check(cudnnSetStream(libraries_.dnn(), stream), "cudnnSetStream");
  check(cudnnConvolutionBackwardData(libraries_.dnn(), &one, weight_, weight, y_, dy, convolution_,
                                     static_cast<cudnnConvolutionBwdDataAlgo_t>(algorithm_), workspace_,
                                     algorithm_bytes_, &zero, x_, dx),
        "cudnnConvolutionBackwardData");
}

void Convolution::backward_weight(const void* dy, const void* x, void* dweight, cudaStream_t stream) const {
  const float one = 1.0F;
  const float zero = 0.0F;
  check(cudnnSetStream(libraries_.dnn(), stream), "cudnnSetStream");
  check(cudnnConvolutionBackwardFilter(libraries_.dnn(), &one, x_, x, y_, dy, convolution_,
                                       static_cast<cudnnConvolutionBwdFilterAlgo_t>(algorithm_), workspace_,
                                       algorithm_bytes_, &zero, weight_, dweight),
        "cudnnConvolutionBackwardFilter");
}

}  // namespace strata::cuda
