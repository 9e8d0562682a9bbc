/// @file
/// Convolutions of the emulation: the definitions, in f32, where cuDNN would be called.

#include <cudnn.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cuda/emulation/streams.hpp"
#include "exec/cuda/convolution.hpp"
#include "exec/cuda/convolution_plan.hpp"
#include "exec/cuda/fused_convolution.hpp"
#include "exec/cuda/libraries.hpp"

namespace strata::cuda {
namespace {

float load(DType dtype, const void* from, std::int64_t i) {
  return dtype == DType::f32 ? static_cast<const float*>(from)[i]
                             : static_cast<float>(static_cast<const bf16*>(from)[i]);
}
void store(DType dtype, void* to, std::int64_t i, float value) {
  if (dtype == DType::f32) {
    static_cast<float*>(to)[i] = value;
  } else {
    static_cast<bf16*>(to)[i] = bf16(value);
  }
}

}  // namespace

Convolution::Convolution(Libraries& libraries, Pass, const ConvolutionDims& dims, std::span<std::byte> workspace)
    : libraries_(libraries), workspace_(workspace.data()) {
  x_ = reinterpret_cast<cudnnTensorDescriptor_t>(new ConvolutionDims(dims));  // all that is needed here
}
Convolution::~Convolution() { delete reinterpret_cast<ConvolutionDims*>(x_); }

namespace {

/// Calls body(output, input, weight) for every product of the convolution, as indices of elements.
template <typename Body>
void for_products(const ConvolutionDims& d, Body&& body) {
  for (std::int64_t image = 0; image < d.images; ++image) {
    for (std::int64_t at = 0; at < d.out_height() * d.out_width() * d.out; ++at) {
      const std::int64_t o = at % d.out;
      const std::int64_t column = at / d.out % d.out_width();
      const std::int64_t row = at / d.out / d.out_width();
      for (std::int64_t r = 0; r < d.kernel_h; ++r) {
        for (std::int64_t c = 0; c < d.kernel_w; ++c) {
          const std::int64_t y = row * d.stride - d.padding + r;
          const std::int64_t x = column * d.stride - d.padding + c;
          if (y < 0 || y >= d.height || x < 0 || x >= d.width) continue;
          for (std::int64_t i = 0; i < d.in; ++i) {
            body(image * d.out_height() * d.out_width() * d.out + at, ((image * d.height + y) * d.width + x) * d.in + i,
                 ((o * d.kernel_h + r) * d.kernel_w + c) * d.in + i);
          }
        }
      }
    }
  }
}

void write(DType dtype, void* to, const std::vector<float>& sums) {
  for (std::size_t i = 0; i < sums.size(); ++i) store(dtype, to, static_cast<std::int64_t>(i), sums[i]);
}

}  // namespace

void Convolution::forward(const void* x, const void* weight, void* y, cudaStream_t stream) const {
  emulation::submit(stream, [=, d = *reinterpret_cast<const ConvolutionDims*>(x_)] {
    std::vector<float> sums(static_cast<std::size_t>(d.images * d.out_height() * d.out_width() * d.out));
    for_products(d, [&](std::int64_t o, std::int64_t i, std::int64_t w) {
      sums[static_cast<std::size_t>(o)] += load(d.dtype, x, i) * load(d.dtype, weight, w);
    });
    write(d.dtype, y, sums);
  });
}

namespace {

bool begins_on_a_vector(const ConvolutionAddresses& a) {
  return std::ranges::all_of(std::array{a.x, a.weight, a.bias, a.y}, [](const std::byte* address) {
    return reinterpret_cast<std::uintptr_t>(address) % OperationGraph::alignment_bytes == 0;
  });
}

}  // namespace

/// The same with bias and ReLU, rounded once.
struct FusedConvolution::Call {
  ConvolutionDims d;
  ConvolutionAddresses a;
};
FusedConvolution::FusedConvolution(Libraries&, const ConvolutionDims& dims, const ConvolutionAddresses& addresses,
                                   std::span<std::byte>)
    : call_(std::make_unique<const Call>(dims, addresses)) {}
FusedConvolution::~FusedConvolution() = default;
std::shared_ptr<const FusedConvolution> FusedConvolution::if_there(Libraries& libraries, const ConvolutionDims& d,
                                                                   const ConvolutionAddresses& a,
                                                                   std::span<std::byte> workspace) {
  if (*fused_convolution_condition(d) != '\0' || !begins_on_a_vector(a)) return nullptr;
  return std::make_shared<const FusedConvolution>(libraries, d, a, workspace);
}
void FusedConvolution::run(cudaStream_t stream) const {
  emulation::submit(stream, [d = call_->d, a = call_->a] {
    std::vector<float> sums(static_cast<std::size_t>(d.images * d.out_height() * d.out_width() * d.out));
    for_products(d, [&](std::int64_t o, std::int64_t i, std::int64_t w) {
      sums[static_cast<std::size_t>(o)] += load(d.dtype, a.x, i) * load(d.dtype, a.weight, w);
    });
    for (std::size_t o = 0; o < sums.size(); ++o) {
      const float sum = sums[o] + load(d.dtype, a.bias, static_cast<std::int64_t>(o) % d.out);
      sums[o] = sum <= 0.0F ? 0.0F : sum;
    }
    write(d.dtype, a.y, sums);
  });
}

void Convolution::backward_input(const void* dy, const void* weight, void* dx, cudaStream_t stream) const {
  emulation::submit(stream, [=, d = *reinterpret_cast<const ConvolutionDims*>(x_)] {
    std::vector<float> sums(static_cast<std::size_t>(d.images * d.height * d.width * d.in));
    for_products(d, [&](std::int64_t o, std::int64_t i, std::int64_t w) {
      sums[static_cast<std::size_t>(i)] += load(d.dtype, dy, o) * load(d.dtype, weight, w);
    });
    write(d.dtype, dx, sums);
  });
}

void Convolution::backward_weight(const void* dy, const void* x, void* dweight, cudaStream_t stream) const {
  emulation::submit(stream, [=, d = *reinterpret_cast<const ConvolutionDims*>(x_)] {
    std::vector<float> sums(static_cast<std::size_t>(d.out * d.kernel_h * d.kernel_w * d.in));
    for_products(d, [&](std::int64_t o, std::int64_t i, std::int64_t w) {
      sums[static_cast<std::size_t>(w)] += load(d.dtype, dy, o) * load(d.dtype, x, i);
    });
    write(d.dtype, dweight, sums);
  });
}

}  // namespace strata::cuda

std::size_t cudnnGetVersion() { return CUDNN_VERSION; }
const char* cudnnGetErrorString(cudnnStatus_t) { return "an error of the emulation"; }
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) { return *handle = nullptr, CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnDestroy(cudnnHandle_t) { return CUDNN_STATUS_SUCCESS; }
