/// @file
/// Rates of this rank's GPU, which results compare a run with.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>

#include "exec/cuda/device_arena.hpp"
#include "exec/cuda/event.hpp"
#include "exec/cuda/kernels/elementwise.hpp"
#include "exec/cuda/libraries.hpp"
#include "exec/cuda/matmul.hpp"
#include "exec/cuda_backend.hpp"
#include "exec/device/workspace.hpp"

namespace strata::cuda {
namespace {

constexpr int num_warmups = 2;
constexpr int num_repetitions = 10;
constexpr std::int64_t copied_bytes = std::int64_t{256} << 20;

double seconds_once(const std::function<void(cudaStream_t)>& call) {
  const Stream stream;
  Event begin(Event::Kind::timing);
  Event end(Event::Kind::timing);
  begin.record(stream.get());
  call(stream.get());
  end.record(stream.get());
  stream.synchronize();
  return static_cast<double>(end.ns_since(begin)) * 1e-9;
}

/// Of the fastest repetition.
double seconds_of(const std::function<void(cudaStream_t)>& call) {
  for (int i = 0; i < num_warmups; ++i) seconds_once(call);
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < num_repetitions; ++i) best = std::min(best, seconds_once(call));
  return best;
}

/// Random numbers, as in training: products of zeros draw less power.
std::unique_ptr<DeviceArena> square(DType dtype, std::int64_t n, std::uint64_t stream_number) {
  auto matrix = std::make_unique<DeviceArena>(n * n * size_of(dtype), ArenaMemory::device);
  const Stream stream;
  initialize_normal({.dtype = dtype, .y = matrix->data(), .n = n * n, .random = {.seed = 1, .stream = stream_number}},
                    0.0F, 1.0F, stream.get());
  stream.synchronize();
  return matrix;
}

/// As many as take this long one after the other: what a GPU's power limit lets it sustain, it sustains by then.
constexpr double sustained_seconds = 0.5;

ProductRates product_rates(Libraries& libraries, DType dtype, std::int64_t n) {
  const auto a = square(dtype, n, 1);
  const auto b = square(dtype, n, 2);
  const auto d = square(dtype, n, 3);
  const DeviceArena workspace(matmul_workspace_bytes, ArenaMemory::device);
  const Matmul product(libraries,
                       {.layout = linear_forward_layout({.tokens = n, .in = n, .out = n, .dtype = dtype}),
                        .dtype = dtype,
                        .out_dtype = dtype,
                        .a = a->data(),
                        .b = b->data(),
                        .d = d->data()},
                       {workspace.data(), static_cast<std::size_t>(matmul_workspace_bytes)});
  const auto size = static_cast<double>(n);
  const double flops = 2.0 * size * size * size;
  const double shortest = seconds_of([&](cudaStream_t stream) { product.run(stream); });
  const auto count = static_cast<int>(std::clamp(sustained_seconds / shortest, 1.0, 1e5));
  const double together = seconds_once([&](cudaStream_t stream) {
    for (int i = 0; i < count; ++i) product.run(stream);
  });
  return {.best = flops / shortest, .sustained = flops * count / together};
}

}  // namespace

ProductRates measure_product_rates(DType dtype, const Numerics& numerics) {
  Libraries libraries(numerics);
  ProductRates fastest;
  for (const std::int64_t n : {2048, 4096, 8192}) {
    const ProductRates rates = product_rates(libraries, dtype, n);
    if (rates.best > fastest.best) fastest = rates;
  }
  return fastest;
}

double measure_memory_bytes_per_second() {
  const DeviceArena from(copied_bytes, ArenaMemory::device);
  const DeviceArena to(copied_bytes, ArenaMemory::device);
  const double seconds = seconds_of([&](cudaStream_t stream) {
    check(cudaMemcpyAsync(to.data(), from.data(), static_cast<std::size_t>(copied_bytes), cudaMemcpyDeviceToDevice,
                          stream),
          "a copy");
  });
  return 2.0 * static_cast<double>(copied_bytes) / seconds;
}

}  // namespace strata::cuda
