/// @file
/// Optimizer updates: every array is read and written once, eight values a thread where all of a slice are aligned. The
/// blocks of a launch are dealt to its slices, each as many as it has elements for.

#include <cmath>

#include "exec/cuda/kernels/device.cuh"
#include "exec/cuda/kernels/optimizer.hpp"

namespace strata::cuda {
namespace {

/// One element's update, which changes master weight and states.
struct Adam {
  using Factors = AdamFactors;
  Factors f;
  __device__ void operator()(float gradient, float& w, float& m, float& v) const {
    const float g = gradient + f.decay * w;
    m = m + f.weight_of_gradient * (g - m);
    v = f.beta2 * v + f.weight_of_square * g * g;
    w = f.shrink * w - f.rate * (m / (sqrtf(v) * f.inverse_root_correction + f.epsilon));
  }
};
struct Sgd {
  using Factors = SgdFactors;
  Factors f;
  __device__ void operator()(float gradient, float& w, float& u, float&) const {
    const float g = gradient + f.decay * w;
    u = f.has_momentum ? f.momentum * u + g : g;
    w = w - f.rate * u;
  }
};

constexpr std::int64_t elements_of_block = std::int64_t{4} * flat_threads * pack;

/// A parameter of the kernel.
struct SlicesOfLaunch {
  ParameterSlice slices[most_slices_of_launch];
  std::int64_t first_blocks[most_slices_of_launch];
  bool aligned[most_slices_of_launch];
  int num_slices;
};
static_assert(sizeof(SlicesOfLaunch) <= 4096, "parameters of a kernel");

/// States that are null are neither read nor written.
template <typename G, typename Update>
__global__ void update_kernel(const __grid_constant__ SlicesOfLaunch launch) {
  int s = 0;
  while (s + 1 < launch.num_slices && launch.first_blocks[s + 1] <= blockIdx.x) ++s;
  const ParameterSlice slice = launch.slices[s];
  const bool aligned = launch.aligned[s];
  float* const first = slice.first_state;
  float* const second = slice.second_state;
  const Update update{*static_cast<const typename Update::Factors*>(slice.factors)};
  const auto* const gradient = static_cast<const G*>(slice.gradient);
  auto* const compute = static_cast<device_bf16*>(slice.compute);
  const float factor = slice.gradient_factor == nullptr ? 1.0F : *slice.gradient_factor;
  const std::int64_t begin = (blockIdx.x - launch.first_blocks[s]) * elements_of_block;
  const std::int64_t end = min(slice.n, begin + elements_of_block);
  for (std::int64_t i = begin + std::int64_t{threadIdx.x} * pack; i < end; i += std::int64_t{blockDim.x} * pack) {
    if (aligned && i + pack <= end) {
      float g[pack];
      float w[pack];
      float a[pack] = {};
      float b[pack] = {};
      load_pack(gradient + i, g);
      load_pack(slice.master + i, w);
      if (first != nullptr) load_pack(first + i, a);
      if (second != nullptr) load_pack(second + i, b);
#pragma unroll
      for (int k = 0; k < pack; ++k) update(g[k] * factor, w[k], a[k], b[k]);
      store_pack(slice.master + i, w);
      if (first != nullptr) store_pack(first + i, a);
      if (second != nullptr) store_pack(second + i, b);
      if (compute != nullptr) store_pack(compute + i, w);
      continue;
    }
    for (std::int64_t j = i; j < min(end, i + pack); ++j) {
      float w = slice.master[j];
      float a = first == nullptr ? 0.0F : first[j];
      float b = second == nullptr ? 0.0F : second[j];
      update(to_float(gradient[j]) * factor, w, a, b);
      slice.master[j] = w;
      if (first != nullptr) first[j] = a;
      if (second != nullptr) second[j] = b;
      if (compute != nullptr) compute[j] = from_float<device_bf16>(w);
    }
  }
}

template <typename Update>
void update(std::span<const ParameterSlice> slices, cudaStream_t stream) {
  for (std::size_t begin = 0; begin < slices.size(); begin += most_slices_of_launch) {
    const auto of_launch = slices.subspan(begin, std::min(most_slices_of_launch, slices.size() - begin));
    SlicesOfLaunch launch{};
    std::int64_t num_blocks = 0;
    for (const ParameterSlice& slice : of_launch) {
      STRATA_INVARIANT(slice.gradient_dtype == slices.front().gradient_dtype, "gradients of one dtype");
      if (slice.n == 0) continue;
      const auto s = static_cast<std::size_t>(launch.num_slices++);
      launch.slices[s] = slice;
      launch.first_blocks[s] = num_blocks;
      launch.aligned[s] =
          are_aligned(slice.master, slice.gradient, slice.compute, slice.first_state, slice.second_state);
      num_blocks += (slice.n + elements_of_block - 1) / elements_of_block;
    }
    if (launch.num_slices == 0) continue;
    with_storage(slices.front().gradient_dtype, [&](auto type) {
      using G = decltype(type);
      update_kernel<G, Update><<<static_cast<unsigned>(num_blocks), flat_threads, 0, stream>>>(launch);
    });
    check_launch("optimizer");
  }
}

}  // namespace

AdamFactors adam_factors(const AdamSettings& s, double learning_rate, std::int64_t step) {
  STRATA_INVARIANT(step >= 1, "Adam's steps count from 1");
  const auto count = static_cast<double>(step);
  return {.rate = static_cast<float>(learning_rate / (1.0 - std::pow(s.beta1, count))),
          .inverse_root_correction = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(s.beta2, count))),
          .weight_of_gradient = static_cast<float>(1.0 - s.beta1),
          .beta2 = static_cast<float>(s.beta2),
          .weight_of_square = static_cast<float>(1.0 - s.beta2),
          .epsilon = static_cast<float>(s.epsilon),
          .shrink = s.decoupled ? static_cast<float>(1.0 - learning_rate * s.weight_decay) : 1.0F,
          .decay = s.decoupled ? 0.0F : static_cast<float>(s.weight_decay)};
}

SgdFactors sgd_factors(const SgdSettings& s, double learning_rate) {
  return {.rate = static_cast<float>(learning_rate),
          .decay = static_cast<float>(s.weight_decay),
          .momentum = static_cast<float>(s.momentum),
          .has_momentum = s.has_momentum};
}

void adam_update(std::span<const ParameterSlice> slices, cudaStream_t stream) { update<Adam>(slices, stream); }

void sgd_update(std::span<const ParameterSlice> slices, cudaStream_t stream) { update<Sgd>(slices, stream); }

}  // namespace strata::cuda
