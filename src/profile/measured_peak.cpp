#include "profile/measured_peak.hpp"

#include <fmt/ranges.h>
#include <omp.h>

#include <vector>

#include "exec/cpu/kernel_library.hpp"
#include "exec/cuda_backend.hpp"
#include "predict/device_options.hpp"
#include "predict/prepared_point.hpp"

namespace strata::profile {
namespace {

struct Products {
  std::vector<std::int64_t> sizes;
  double budget_seconds;
};

Products products_of(const Experiment& experiment) {
  if (experiment.measure.peak == "quick") return {.sizes = {512}, .budget_seconds = 0.01};
  return {.sizes = {1024, 2048, 4096}, .budget_seconds = 1.5};
}

}  // namespace

ProductRates MeasuredPeak::product_rates(const Experiment& experiment, DType dtype) {
  const bool on_gpus = predict::is_on_gpus(experiment);
  const std::int64_t num_threads = experiment.resources.threads_per_rank;
  const cuda::Numerics numerics = predict::numerics_of(experiment);
  const Products products = products_of(experiment);
  const auto [entry, is_new] =
      measured_.try_emplace({on_gpus, dtype, num_threads, numerics.tf32, numerics.deterministic, numerics.time_products,
                             products.sizes.front()},
                            ProductRates{});
  if (is_new) {
    omp_set_num_threads(static_cast<int>(num_threads));
    const ProductRates mine =
        on_gpus ? cuda::measure_product_rates(dtype, numerics)
                : cpu::kernel_library().measure_product_rates(dtype, products.sizes, products.budget_seconds);
    double sums[2] = {mine.best, mine.sustained};
    world_.all_reduce_sum(sums);
    entry->second = {.best = sums[0] / world_.size(), .sustained = sums[1] / world_.size()};
  }
  return entry->second;
}

double MeasuredPeak::memory_bytes_per_second(bool on_gpus) {
  const auto [entry, is_new] = memory_bytes_per_second_.try_emplace(on_gpus, 0.0);
  if (is_new) {
    world_.barrier();
    double rate[1] = {on_gpus ? cuda::measure_memory_bytes_per_second()
                              : cpu::kernel_library().measure_memory_bytes_per_second()};
    world_.all_reduce_sum(rate);
    entry->second = rate[0] / world_.size();
  }
  return entry->second;
}

std::string MeasuredPeak::source(const Experiment& experiment) {
  const char* const library =
      !predict::is_on_gpus(experiment) ? "oneDNN" : (experiment.cuda.tf32 ? "cuBLASLt (TF32)" : "cuBLASLt");
  const std::string sizes = predict::is_on_gpus(experiment)
                                ? "2048, 4096, 8192"
                                : fmt::format("{}", fmt::join(products_of(experiment).sizes, ", "));
  return fmt::format("measured: {} square matrix product, best of n = {}, all ranks at once", library, sizes);
}

}  // namespace strata::profile
