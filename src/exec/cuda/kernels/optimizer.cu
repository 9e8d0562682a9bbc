/// @file
/// Optimizer updates: every stream is read and written once, eight values a thread where all are aligned.

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

/// States that are null are neither read nor written.
template <typename G, typename Update>
__global__ void update_kernel(ParameterSlice slice, float* first, float* second, bool aligned,
                              const typename Update::Factors* factors) {
  const Update update{*factors};
  const auto* const gradient = static_cast<const G*>(slice.gradient);
  auto* const compute = static_cast<device_bf16*>(slice.compute);
  const float factor = slice.gradient_factor == nullptr ? 1.0F : *slice.gradient_factor;
  for (std::int64_t i = flat_index() * pack; i < slice.n; i += flat_stride() * pack) {
    if (aligned && i + pack <= slice.n) {
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
    for (std::int64_t j = i; j < min(slice.n, i + pack); ++j) {
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
void launch(const ParameterSlice& slice, float* first, float* second, const typename Update::Factors* factors,
            cudaStream_t stream) {
  if (slice.n == 0) return;
  const bool aligned = are_aligned(slice.master, slice.gradient, slice.compute, first, second);
  with_storage(slice.gradient_dtype, [&](auto type) {
    using G = decltype(type);
    update_kernel<G, Update>
        <<<flat_blocks((slice.n + pack - 1) / pack), flat_threads, 0, stream>>>(slice, first, second, aligned, factors);
  });
  check_launch("optimizer");
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

void adam_update(const AdamFactors* factors, const ParameterSlice& slice, float* m, float* v, cudaStream_t stream) {
  launch<Adam>(slice, m, v, factors, stream);
}

void sgd_update(const SgdFactors* factors, const ParameterSlice& slice, float* momentum_state, cudaStream_t stream) {
  launch<Sgd>(slice, momentum_state, nullptr, factors, stream);
}

}  // namespace strata::cuda
