/// @file
/// The peak is the best rate of oneDNN's square matrix products, measured here.

#include "exec/cpu/gemm_peak.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
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

constexpr int num_turns = 3;

/// The product of one size, and what was seen of it.
class SquareProduct {
 public:
  SquareProduct(DType dtype, std::int64_t n)
      : n_(n),
        plain_({n, n}, dnnl_type(dtype), memory::format_tag::ab),
        any_({n, n}, dnnl_type(dtype), memory::format_tag::any),
        description_({computable(plain_), computable(any_), computable(plain_)}, user_scratchpad(), dnnl_engine()),
        product_(dnnl::matmul(description_),
                 {{DNNL_ARG_SRC, plain_, Access::read},
                  {DNNL_ARG_WEIGHTS, description_.weights_desc(), Access::read},
                  {DNNL_ARG_DST, plain_, Access::write}},
                 description_.scratchpad_desc()),
        a_(plain_, dnnl_engine()),
        b_(description_.weights_desc(), dnnl_engine()),
        c_(plain_, dnnl_engine()),
        scratchpad_({{product_.scratchpad_bytes()}, memory::data_type::u8, memory::format_tag::a}, dnnl_engine()) {
    fill_random(a_, 1);
    fill_random(b_, 2);
    run();
  }

  void take_turn(double seconds) {
    const Clock::time_point begin = Clock::now();
    do {
      const Clock::time_point start = Clock::now();
      run();
      const double taken = seconds_since(start);
      best_seconds_ = std::min(best_seconds_, taken);
      total_seconds_ += taken;
      ++num_runs_;
    } while (seconds_since(begin) < seconds);
  }

  ProductRates rates() const {
    const auto size = static_cast<double>(n_);
    const double flops = 2.0 * size * size * size;
    return {.best = flops / best_seconds_, .sustained = flops * static_cast<double>(num_runs_) / total_seconds_};
  }

 private:
  void run() {
    product_.run({a_.get_data_handle(), b_.get_data_handle(), c_.get_data_handle()},
                 static_cast<std::byte*>(scratchpad_.get_data_handle()));
  }

  std::int64_t n_;
  memory::desc plain_, any_;
  dnnl::matmul::primitive_desc description_;
  BoundPrimitive product_;
  memory a_, b_, c_, scratchpad_;
  double best_seconds_ = std::numeric_limits<double>::infinity();
  double total_seconds_ = 0.0;
  std::int64_t num_runs_ = 0;
};

}  // namespace

ProductRates measure_product_rates(DType dtype, std::span<const std::int64_t> sizes, double budget_seconds) {
  return dnnl_build("measure its matrix product", [&] {
    std::vector<std::unique_ptr<SquareProduct>> products;
    for (const std::int64_t n : sizes) products.push_back(std::make_unique<SquareProduct>(dtype, n));
    const double seconds = budget_seconds / static_cast<double>(num_turns * sizes.size());
    for (int turn = 0; turn < num_turns; ++turn) {
      for (const auto& product : products) product->take_turn(seconds);
    }
    ProductRates fastest;
    for (const auto& product : products) {
      const ProductRates rates = product->rates();
      if (rates.best > fastest.best) fastest = rates;
    }
    return fastest;
  });
}

}  // namespace strata::cpu
