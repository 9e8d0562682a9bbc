/// @file
/// Kernels bound by memory, on the shapes of GPT-2-small with 4096 tokens: time a call and an element, the bandwidth
/// that the operands' own bytes imply, and its share of what memory gives in the same run. A share above 1 means that
/// part of the operands stayed in a cache. The last lines add up one training step. One repetition is the unit of
/// noise: the median of several is shown.
///
/// Usage: bench_memory_bound [seconds a kernel]; threads from OMP_NUM_THREADS.

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "exec/cpu/kernels/activation.hpp"
#include "exec/cpu/kernels/cross_entropy.hpp"
#include "exec/cpu/kernels/dropout.hpp"
#include "exec/cpu/kernels/elementwise.hpp"
#include "exec/cpu/kernels/embedding.hpp"
#include "exec/cpu/kernels/initialize.hpp"
#include "exec/cpu/kernels/layer_norm.hpp"
#include "exec/cpu/kernels/optimizer.hpp"
#include "exec/cpu/kernels/residual.hpp"
#include "exec/cpu/kernels/rms_norm.hpp"

namespace {

using namespace strata;
using namespace strata::cpu;

constexpr std::int64_t rows = 4096;
constexpr std::int64_t width = 768;
constexpr std::int64_t vocabulary = 50257;
constexpr std::int64_t num_layers = 12;
constexpr std::int64_t num_parameters = 124'439'808;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Median seconds of a call, after one that is not counted.
double median_seconds(double budget_seconds, const std::function<void()>& call) {
  call();
  std::vector<double> times;
  const double end = seconds_now() + budget_seconds;
  while (times.size() < 3 || (seconds_now() < end && times.size() < 1000)) {
    const double begin = seconds_now();
    call();
    times.push_back(seconds_now() - begin);
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

/// Memory that pages are mapped to, filled with normals so that nothing is timed on zeros.
std::vector<std::byte> random_tensor(DType dtype, std::int64_t n, float standard_deviation = 1.0F) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(n * size_of(dtype)));
  initialize_normal({.dtype = dtype, .y = bytes.data(), .n = n, .random = {1, static_cast<std::uint64_t>(n)}}, 0.0F,
                    standard_deviation);
  return bytes;
}

class Table {
 public:
  explicit Table(double budget_seconds) : budget_seconds_(budget_seconds) {
    const std::int64_t n = 64 << 20;
    std::vector<std::byte> from(static_cast<std::size_t>(n), std::byte{1});
    std::vector<std::byte> to(static_cast<std::size_t>(n), std::byte{2});
    copy_bytes_per_second_ = 2.0 * static_cast<double>(n) /
                             median_seconds(budget_seconds, [&] { copy(DType::u8, from.data(), to.data(), n); });
    fmt::print("copy of 64 MiB: {:.1f} GB/s read and written, {} threads\n\n{:<34}{:>10}{:>12}{:>10}{:>10}\n",
               copy_bytes_per_second_ * 1e-9, omp_get_max_threads(), "kernel", "ms", "ns/element", "GB/s", "of copy");
  }

  /// @param element_bytes bytes of all operands that a call reads and writes, an element. @returns seconds of a call.
  double row(const std::string& name, std::int64_t num_elements, double element_bytes,
             const std::function<void()>& call) const {
    const double seconds = median_seconds(budget_seconds_, call);
    const double rate = element_bytes * static_cast<double>(num_elements) / seconds;
    fmt::print("{:<34}{:>10.3f}{:>12.3f}{:>10.1f}{:>10.2f}\n", name, seconds * 1e3,
               seconds * 1e9 / static_cast<double>(num_elements), rate * 1e-9, rate / copy_bytes_per_second_);
    std::fflush(stdout);
    return seconds;
  }

 private:
  double budget_seconds_;
  double copy_bytes_per_second_ = 0.0;
};

/// @returns seconds of one training step in everything measured here but the optimizer.
double bench_activations(const Table& table, DType dtype) {
  const std::string suffix = fmt::format(" {}", to_string(dtype));
  const auto bytes = static_cast<double>(size_of(dtype));
  const std::int64_t n = rows * width;
  const std::int64_t wide = 4 * n;
  auto x = random_tensor(dtype, wide);
  auto dy = random_tensor(dtype, wide);
  auto y = random_tensor(dtype, wide);
  auto weight = random_tensor(dtype, width);
  std::vector<float> statistics(static_cast<std::size_t>(2 * rows));
  std::vector<float> dweight(static_cast<std::size_t>(width));
  std::vector<float> dbias(static_cast<std::size_t>(width));

  double step = 0.0;
  const LayerNormDims norm{rows, width, dtype, DType::f32, 1e-5F};
  std::vector<std::byte> workspace(static_cast<std::size_t>(layer_norm_backward_workspace_bytes(norm)));
  step += (2 * num_layers + 1) * table.row("layer_norm forward" + suffix, n, 2 * bytes, [&] {
    layer_norm_forward(norm, x.data(), weight.data(), weight.data(), y.data(), statistics.data());
  });
  step += (2 * num_layers + 1) * table.row("layer_norm backward, dx +=" + suffix, n, 4 * bytes, [&] {
    layer_norm_backward(norm,
                        {.dy = dy.data(),
                         .x = x.data(),
                         .weight = weight.data(),
                         .statistics = statistics.data(),
                         .dx = y.data(),
                         .dweight = dweight.data(),
                         .dbias = dbias.data()},
                        {.dx = true}, workspace);
  });
  fill(dtype, y.data(), wide, 0.5F);
  const RmsNormDims rms{rows, width, dtype, DType::f32, 1e-5F};
  table.row("rms_norm forward" + suffix, n, 2 * bytes,
            [&] { rms_norm_forward(rms, x.data(), weight.data(), y.data(), statistics.data()); });
  table.row("rms_norm backward" + suffix, n, 3 * bytes, [&] {
    rms_norm_backward(rms,
                      {.dy = dy.data(),
                       .x = x.data(),
                       .weight = weight.data(),
                       .statistics = statistics.data(),
                       .dx = y.data(),
                       .dweight = dweight.data()},
                      {}, workspace);
  });
  step += num_layers *
          table.row("gelu forward" + suffix, wide, 2 * bytes, [&] { gelu_forward(dtype, x.data(), y.data(), wide); });
  step += num_layers * table.row("gelu backward" + suffix, wide, 3 * bytes,
                                 [&] { gelu_backward(dtype, dy.data(), x.data(), y.data(), wide); });
  table.row("gelu_erf forward" + suffix, wide, 2 * bytes, [&] { gelu_erf_forward(dtype, x.data(), y.data(), wide); });
  table.row("gelu_erf backward" + suffix, wide, 3 * bytes,
            [&] { gelu_erf_backward(dtype, dy.data(), x.data(), y.data(), wide); });
  table.row("relu forward" + suffix, wide, 2 * bytes, [&] { relu_forward(dtype, x.data(), y.data(), wide); });
  table.row("swiglu forward" + suffix, wide / 2, 3 * bytes,
            [&] { swiglu_forward(dtype, x.data(), y.data(), rows, 2 * width); });
  table.row("swiglu backward" + suffix, wide / 2, 5 * bytes,
            [&] { swiglu_backward(dtype, dy.data(), x.data(), y.data(), rows, 2 * width); });
  step +=
      2 * num_layers * table.row("add" + suffix, n, 3 * bytes, [&] { add(dtype, x.data(), dy.data(), y.data(), n); });
  const Dropout dropout{0.1F, {1, 2}, 12345};
  table.row("dropout" + suffix, n, 2 * bytes, [&] { dropout_forward(dtype, x.data(), y.data(), n, dropout); });
  table.row("add_dropout" + suffix, n, 3 * bytes,
            [&] { add_dropout(dtype, x.data(), dy.data(), y.data(), n, dropout); });

  std::vector<std::int32_t> tokens(static_cast<std::size_t>(rows));
  const RandomStream stream{3, 4};
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<std::int32_t>(stream.word(i) % vocabulary);
  }
  auto token_table = random_tensor(dtype, vocabulary * width);
  std::vector<float> dtable(static_cast<std::size_t>(vocabulary * width));
  std::vector<float> dpositions(static_cast<std::size_t>(1024 * width));
  EmbeddingDims embedding{
      .rows = rows, .sequence = 1024, .width = width, .vocabulary = vocabulary, .num_positions = 1024, .dtype = dtype};
  workspace.resize(static_cast<std::size_t>(embedding_backward_workspace_bytes(embedding)));
  step += table.row("embedding forward" + suffix, n, 2 * bytes, [&] {
    embedding_forward(embedding, tokens.data(), token_table.data(), token_table.data(), y.data());
  });
  step += table.row("embedding backward, dtable +=" + suffix, n, bytes + 8, [&] {
    embedding_backward(
        embedding, {.tokens = tokens.data(), .dy = dy.data(), .dtable = dtable.data(), .dpositions = dpositions.data()},
        {.table = true}, workspace);
  });
  return step;
}

double bench_cross_entropy(const Table& table, DType dtype) {
  const std::string suffix = fmt::format(" {}", to_string(dtype));
  const auto bytes = static_cast<double>(size_of(dtype));
  constexpr std::int64_t some_rows = 1024;  // a quarter of the step's
  auto logits = random_tensor(dtype, some_rows * vocabulary);
  std::vector<float> loss(static_cast<std::size_t>(some_rows));
  const std::vector<std::int32_t> targets(static_cast<std::size_t>(some_rows), 17);
  const CrossEntropyDims dims{.rows = some_rows, .classes = vocabulary, .dtype = dtype};
  table.row("cross_entropy forward" + suffix, some_rows * vocabulary, bytes,
            [&] { cross_entropy_forward(dims, logits.data(), targets.data(), loss.data()); });
  // Written over again and again, the logits become small: exponentials cost the same.
  return rows / some_rows * table.row("cross_entropy gradient" + suffix, some_rows * vocabulary, 2 * bytes, [&] {
    cross_entropy_gradient(dims, logits.data(), targets.data(), 1.0F, loss.data());
  });
}

/// @returns seconds of a step's optimizer update and norm, for all parameters.
double bench_optimizer(const Table& table, DType gradient_dtype) {
  const std::string suffix = fmt::format(", gradient {}", to_string(gradient_dtype));
  constexpr std::int64_t n = 16 << 20;
  constexpr double all = static_cast<double>(num_parameters) / n;
  const auto bytes = static_cast<double>(size_of(gradient_dtype));
  auto master = random_tensor(DType::f32, n);
  auto gradient = random_tensor(gradient_dtype, n);
  auto m = random_tensor(DType::f32, n);
  std::vector<float> v(static_cast<std::size_t>(n), 1.0F);
  std::vector<bf16> compute(static_cast<std::size_t>(n));
  float total = 0.0F;
  ParameterSlice slice{.n = n,
                       .master = reinterpret_cast<float*>(master.data()),
                       .gradient = gradient.data(),
                       .gradient_dtype = gradient_dtype};
  auto* first = reinterpret_cast<float*>(m.data());
  table.row("sgd momentum" + suffix, n, 16 + bytes,
            [&] { sgd_update({.learning_rate = 1e-6, .momentum = 0.9}, slice, first); });
  const double adam = table.row("adam" + suffix, n, 24 + bytes,
                                [&] { adam_update({.learning_rate = 1e-6, .step = 10}, slice, first, v.data()); });
  slice.compute = compute.data();
  const double mixed = table.row("adam + bf16 copy" + suffix, n, 26 + bytes,
                                 [&] { adam_update({.learning_rate = 1e-6, .step = 10}, slice, first, v.data()); });
  const double norm = table.row("sum_of_squares" + suffix, n, bytes,
                                [&] { sum_of_squares(gradient_dtype, gradient.data(), n, &total, false); });
  return all * ((gradient_dtype == DType::f32 ? adam : mixed) + norm);
}

void bench_flat(const Table& table) {
  constexpr std::int64_t n = 16 << 20;
  auto x = random_tensor(DType::f32, n);
  auto y = random_tensor(DType::f32, n);
  table.row("accumulate f32 += f32", n, 12, [&] { accumulate(DType::f32, x.data(), DType::f32, y.data(), n); });
  table.row("accumulate f32 += bf16", n, 10, [&] { accumulate(DType::bf16, x.data(), DType::f32, y.data(), n); });
  table.row("cast f32 to bf16", n, 6, [&] { cast(DType::f32, x.data(), DType::bf16, y.data(), n); });
  table.row("fill f32", n, 4, [&] { fill(DType::f32, y.data(), n, 1.0F); });
  const InitializedSlice slice{.y = y.data(), .n = n, .random = {1, 2}, .first_element = 3};
  table.row("initialize_normal f32", n, 4, [&] { initialize_normal(slice, 0.0F, 0.02F); });
  table.row("initialize_uniform f32", n, 4, [&] { initialize_uniform(slice, 0.0F, 1.0F); });
}

}  // namespace

int main(int argc, char** argv) {
  const Table table(argc > 1 ? std::atof(argv[1]) : 0.2);
  bench_flat(table);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const double activations = bench_activations(table, dtype);
    const double classifier = bench_cross_entropy(table, dtype);
    const double optimizer = bench_optimizer(table, dtype);
    fmt::print(
        "\nGPT-2-small step, {} tokens, {}: {:.0f} ms = {:.0f} norms, gelu, residuals, embedding + {:.0f} loss + "
        "{:.0f} optimizer\n\n",
        rows, to_string(dtype), 1e3 * (activations + classifier + optimizer), 1e3 * activations, 1e3 * classifier,
        1e3 * optimizer);
  }
  return 0;
}
