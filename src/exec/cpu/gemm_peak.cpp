/// @file
/// The peak is the best rate of oneDNN's square matrix products, measured here.

#include "exec/cpu/gemm_peak.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <limits>
#include <vector>

#include "base/random.hpp"
#include "exec/cpu/kernels/dnnl_context.hpp"

namespace strata::cpu {

namespace {

using dnnl::memory;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// Uniform in [-0.5, 0.5): on zeros the multipliers draw less power and run faster than in training.
void fill_random(memory& tensor, std::uint64_t stream) {
  const DType dtype = tensor.get_desc().data_type() == memory::data_type::f32 ? DType::f32 : DType::bf16;
  const RandomStream random{.seed = 1, .stream = stream};
  auto* bytes = static_cast<std::byte*>(tensor.get_data_handle());
  const auto num_elements = static_cast<std::int64_t>(tensor.get_desc().get_size()) / size_of(dtype);
  constexpr std::int64_t period = 65536;  // fresh numbers for one run of elements, repeated: counters are slow
  for (std::int64_t i = 0; i < num_elements; ++i) {
    if (i >= period) {
      std::memcpy(bytes + i * size_of(dtype), bytes + (i - period) * size_of(dtype),
                  static_cast<std::size_t>(size_of(dtype)));
      continue;
    }
    const float value = random.uniform(static_cast<std::uint64_t>(i)) - 0.5F;
    if (dtype == DType::f32) {
      std::memcpy(bytes + i * 4, &value, 4);
    } else {
      const bf16 rounded(value);
      std::memcpy(bytes + i * 2, &rounded, 2);
    }
  }
}

double product_flops(DType dtype, std::int64_t n, double budget_seconds) {
  const memory::desc plain({n, n}, dnnl_type(dtype), memory::format_tag::ab);
  const memory::desc any({n, n}, dnnl_type(dtype), memory::format_tag::any);
  const dnnl::matmul::primitive_desc description({computable(plain), computable(any), computable(plain)},
                                                 user_scratchpad(), dnnl_engine());
  BoundPrimitive product(dnnl::matmul(description),
                         {{DNNL_ARG_SRC, plain, Access::read},
                          {DNNL_ARG_WEIGHTS, description.weights_desc(), Access::read},
                          {DNNL_ARG_DST, plain, Access::write}},
                         description.scratchpad_desc());
  memory a(plain, dnnl_engine());
  memory b(description.weights_desc(), dnnl_engine());
  memory c(plain, dnnl_engine());
  memory scratchpad({{product.scratchpad_bytes()}, memory::data_type::u8, memory::format_tag::a}, dnnl_engine());
  fill_random(a, 1);
  fill_random(b, 2);
  const auto run = [&] {
    product.run({a.get_data_handle(), b.get_data_handle(), c.get_data_handle()},
                static_cast<std::byte*>(scratchpad.get_data_handle()));
  };
  run();
  double best_seconds = std::numeric_limits<double>::infinity();
  const Clock::time_point begin = Clock::now();
  do {
    const Clock::time_point start = Clock::now();
    run();
    best_seconds = std::min(best_seconds, seconds_since(start));
  } while (seconds_since(begin) < budget_seconds);
  const auto size = static_cast<double>(n);
  return 2.0 * size * size * size / best_seconds;
}

}  // namespace

double measure_gemm_peak_flops(DType dtype, std::span<const std::int64_t> sizes, double budget_seconds) {
  return dnnl_build("measure its matrix product", [&] {
    double best_flops = 0;
    for (const std::int64_t n : sizes) {
      best_flops = std::max(best_flops, product_flops(dtype, n, budget_seconds / static_cast<double>(sizes.size())));
    }
    return best_flops;
  });
}

}  // namespace strata::cpu
