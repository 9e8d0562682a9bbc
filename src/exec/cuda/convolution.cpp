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

}  // namespace

Convolution::Convolution(Libraries& libraries, Pass pass, const ConvolutionDims& d, std::span<std::byte> workspace)
    : libraries_(libraries), workspace_(workspace.data()) {
  STRATA_INVARIANT(static_cast<std::int64_t>(workspace.size()) >= convolution_workspace_bytes(d),
                   "a convolution's workspace");
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

/// Takes the fastest of cuDNN's @p candidates, which come fastest first, that fits and that cuDNN grants when it is
/// asked for its workspace. The three result types have equal fields.
/// @param bytes_of the workspace of an algorithm, with the convolution's type of arithmetic set.
template <typename Result, typename BytesOf>
void Convolution::take(std::span<const Result> candidates, const ConvolutionDims& d, const BytesOf& bytes_of) {
  const bool deterministic = libraries_.numerics().deterministic;
  const bool must_be_f32 = d.dtype == DType::f32 && !libraries_.numerics().tf32;
  const auto most_bytes = static_cast<std::size_t>(convolution_workspace_bytes(d));
  for (const Result& candidate : candidates) {
    if (candidate.status != CUDNN_STATUS_SUCCESS) continue;
    if (deterministic && candidate.determinism != CUDNN_DETERMINISTIC) continue;
    // Where f32 must stay f32, a candidate that needs tensor cores (TF32) is none. One of default arithmetic may use
    // them, and with FMA arithmetic set it does not: that is what its workspace is asked for, and what runs.
    if (must_be_f32 && candidate.mathType != CUDNN_FMA_MATH && candidate.mathType != CUDNN_DEFAULT_MATH) continue;
    check(cudnnSetConvolutionMathType(convolution_, must_be_f32 ? CUDNN_FMA_MATH : candidate.mathType),
          "cudnnSetConvolutionMathType");
    if (bytes_of(candidate.algo, &algorithm_bytes_) != CUDNN_STATUS_SUCCESS || algorithm_bytes_ > most_bytes) continue;
    algorithm_ = static_cast<int>(candidate.algo);
    return;
  }
  throw Unsupported(fmt::format("cuDNN has no{} convolution of {} x {}x{}x{} to {} channels in {} within {} bytes",
                                deterministic ? " deterministic" : "", d.images, d.height, d.width, d.in, d.out,
                                to_string(d.dtype), most_bytes));
}

void Convolution::choose(Pass pass, const ConvolutionDims& d) {
  const cudnnHandle_t dnn = libraries_.dnn();
  const bool must_be_f32 = d.dtype == DType::f32 && !libraries_.numerics().tf32;
  check(cudnnSetConvolutionMathType(convolution_, must_be_f32 ? CUDNN_FMA_MATH : CUDNN_TENSOR_OP_MATH),
        "cudnnSetConvolutionMathType");
  constexpr int most = 16;
  int num_found = 0;
  const auto found = [&](const auto& candidates) {
    return std::span(candidates).first(static_cast<std::size_t>(num_found));
  };
  switch (pass) {
    case Pass::forward: {
      std::array<cudnnConvolutionFwdAlgoPerf_t, most> candidates{};
      check(cudnnGetConvolutionForwardAlgorithm_v7(dnn, x_, weight_, convolution_, y_, most, &num_found,
                                                   candidates.data()),
            "cudnnGetConvolutionForwardAlgorithm_v7");
      take(found(candidates), d, [&](cudnnConvolutionFwdAlgo_t algorithm, std::size_t* bytes) {
        return cudnnGetConvolutionForwardWorkspaceSize(dnn, x_, weight_, convolution_, y_, algorithm, bytes);
      });
      return;
    }
    case Pass::backward_input: {
      std::array<cudnnConvolutionBwdDataAlgoPerf_t, most> candidates{};
      check(cudnnGetConvolutionBackwardDataAlgorithm_v7(dnn, weight_, y_, convolution_, x_, most, &num_found,
                                                        candidates.data()),
            "cudnnGetConvolutionBackwardDataAlgorithm_v7");
      take(found(candidates), d, [&](cudnnConvolutionBwdDataAlgo_t algorithm, std::size_t* bytes) {
        return cudnnGetConvolutionBackwardDataWorkspaceSize(dnn, weight_, y_, convolution_, x_, algorithm, bytes);
      });
      return;
    }
    case Pass::backward_weight: {
      std::array<cudnnConvolutionBwdFilterAlgoPerf_t, most> candidates{};
      check(cudnnGetConvolutionBackwardFilterAlgorithm_v7(dnn, x_, y_, convolution_, weight_, most, &num_found,
                                                          candidates.data()),
            "cudnnGetConvolutionBackwardFilterAlgorithm_v7");
      take(found(candidates), d, [&](cudnnConvolutionBwdFilterAlgo_t algorithm, std::size_t* bytes) {
        return cudnnGetConvolutionBackwardFilterWorkspaceSize(dnn, x_, y_, convolution_, weight_, algorithm, bytes);
      });
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
