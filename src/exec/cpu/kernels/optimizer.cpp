/// @file
/// Optimizer updates: every stream is read and written once, in order.

#include "exec/cpu/kernels/optimizer.hpp"

#include <cmath>

#include "exec/cpu/kernels/storage.hpp"
#include "exec/cpu/kernels/vector_math.hpp"

namespace strata::cpu {

namespace {

template <typename Lanes>
STRATA_LANES void store_parameter(const ParameterSlice& slice, std::int64_t i, F32x16 w, Lanes lanes) {
  store(slice.master + i, w, lanes);
  if (slice.compute != nullptr) {
    store(slice.compute + i, w, lanes);
  }
}

/// Calls body(i, gradient already multiplied by the factor, lanes) over the slice.
template <typename G, typename Body>
void for_gradients(const ParameterSlice& slice, Body body) {
  const auto* gradient = static_cast<const G*>(slice.gradient);
  const float factor = slice.gradient_factor == nullptr ? 1.0F : *slice.gradient_factor;
  for_chunks(slice.n, [=](std::int64_t begin, std::int64_t count) {
    for_lanes(count, [=](std::int64_t offset, auto lanes) {
      const std::int64_t i = begin + offset;
      body(i, load(gradient + i, lanes) * factor, lanes);
    });
  });
}

}  // namespace

void sgd_update(const SgdOptions& options, const ParameterSlice& slice, float* momentum) {
  STRATA_INVARIANT((momentum != nullptr) == (options.momentum != 0.0), "momentum has a state, and nothing else does");
  const auto rate = static_cast<float>(options.learning_rate);
  const auto decay = static_cast<float>(options.weight_decay);
  const auto mu = static_cast<float>(options.momentum);
  with_storage(slice.gradient_dtype, [&]<typename G>() {
    if (momentum == nullptr) {
      for_gradients<G>(slice, [=](std::int64_t i, F32x16 g, auto lanes) {
        const F32x16 w = load(slice.master + i, lanes);
        store_parameter(slice, i, w - rate * (g + decay * w), lanes);
      });
      return;
    }
    for_gradients<G>(slice, [=, nesterov = options.nesterov](std::int64_t i, F32x16 g, auto lanes) {
      const F32x16 w = load(slice.master + i, lanes);
      const F32x16 decayed = g + decay * w;
      const F32x16 u = mu * load(momentum + i, lanes) + decayed;
      store(momentum + i, u, lanes);
      store_parameter(slice, i, w - rate * (nesterov ? decayed + mu * u : u), lanes);
    });
  });
}

void adam_update(const AdamOptions& options, const ParameterSlice& slice, float* m, float* v) {
  STRATA_INVARIANT(options.step >= 1, fmt::format("Adam's steps count from 1, not {}", options.step));
  const auto step = static_cast<double>(options.step);
  const auto rate = static_cast<float>(options.learning_rate / (1.0 - std::pow(options.beta1, step)));
  const auto inverse_root_correction = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(options.beta2, step)));
  const auto weight_of_gradient = static_cast<float>(1.0 - options.beta1);
  const auto beta2 = static_cast<float>(options.beta2);
  const auto weight_of_square = static_cast<float>(1.0 - options.beta2);
  const auto epsilon = static_cast<float>(options.epsilon);
  // One of the two is neutral: w·1 and g + 0·w change no bit.
  const auto shrink = options.decoupled ? static_cast<float>(1.0 - options.learning_rate * options.weight_decay) : 1.0F;
  const auto decay = options.decoupled ? 0.0F : static_cast<float>(options.weight_decay);
  with_storage(slice.gradient_dtype, [&]<typename G>() {
    for_gradients<G>(slice, [=](std::int64_t i, F32x16 gradient, auto lanes) {
      const F32x16 w = load(slice.master + i, lanes);
      const F32x16 g = gradient + decay * w;
      const F32x16 old_m = load(m + i, lanes);
      const F32x16 new_m = old_m + weight_of_gradient * (g - old_m);
      const F32x16 new_v = beta2 * load(v + i, lanes) + weight_of_square * g * g;
      store(m + i, new_m, lanes);
      store(v + i, new_v, lanes);
      const F32x16 denominator = square_root(new_v) * inverse_root_correction + epsilon;
      store_parameter(slice, i, shrink * w - rate * (new_m / denominator), lanes);
    });
  });
}

}  // namespace strata::cpu
