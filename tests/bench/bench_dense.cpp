/// @file
/// Rates of the dense kernels on the shapes of GPT-2-small and VGG-13, as ratios to oneDNN's best square product of the
/// same run. Machines are shared and noisy: everything is measured in interleaved rounds, each row's and the
/// denominator's best round counts.
///
/// bench_dense [linear|convolution|winograd|all] [f32|bf16|all] [rounds]; winograd: convolutions, by transforms where
/// those serve; their rate is that of the direct sums' operations.

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "base/random.hpp"
#include "exec/cpu/gemm_peak.hpp"
#include "exec/cpu/kernels/convolution.hpp"
#include "exec/cpu/kernels/linear.hpp"

namespace {

using strata::DType;
using Clock = std::chrono::steady_clock;

double seconds_of(const std::function<void()>& run) {
  const Clock::time_point begin = Clock::now();
  run();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// One block of memory, cut up for the row that is being measured. Touched once, so that no row pays for page faults.
class Memory {
 public:
  explicit Memory(std::int64_t num_bytes)
      : num_bytes_(num_bytes),
        data_(static_cast<std::byte*>(std::aligned_alloc(64, static_cast<std::size_t>(num_bytes))), &std::free) {}
  void restart() { used_ = 0; }
  std::span<std::byte> take(std::int64_t num_bytes) {
    const std::int64_t begin = used_;
    used_ += (num_bytes + 63) / 64 * 64;
    if (used_ > num_bytes_) {
      fmt::print(stderr, "bench_dense: needs {} bytes of memory, has {}\n", used_, num_bytes_);
      std::exit(1);
    }
    return {data_.get() + begin, static_cast<std::size_t>(num_bytes)};
  }
  /// Uniform in [-0.5, 0.5), never zeros.
  std::byte* tensor(DType dtype, std::int64_t num_elements) {
    std::byte* begin = take(num_elements * strata::size_of(dtype)).data();
    constexpr std::uint64_t period = 4099;
    const strata::RandomStream random{.seed = 3, .stream = 1};
    std::vector<float> values(period);
    for (std::uint64_t i = 0; i < period; ++i) {
      values[i] = random.uniform(i) - 0.5F;
    }
    for (std::int64_t i = 0; i < num_elements; ++i) {
      const float value = values[static_cast<std::uint64_t>(i) % period];
      if (dtype == DType::f32) {
        reinterpret_cast<float*>(begin)[i] = value;
      } else {
        reinterpret_cast<strata::bf16*>(begin)[i] = strata::bf16(value);
      }
    }
    return begin;
  }

 private:
  std::int64_t num_bytes_;
  std::int64_t used_ = 0;
  std::unique_ptr<std::byte, decltype(&std::free)> data_;
};

struct Row {
  std::string name;
  double flops = 0;
  std::function<std::function<void()>()> prepare;  // lays out memory, returns what is timed
  double best_seconds = 1e30;
};

struct LinearShape {
  std::string name;
  std::int64_t in;
  std::int64_t out;
};

std::vector<Row> linear_rows(DType dtype, Memory& memory) {
  constexpr std::int64_t tokens = 4096;
  std::vector<Row> rows;
  for (const LinearShape& shape :
       {LinearShape{"qkv", 768, 2304}, LinearShape{"projection", 768, 768}, LinearShape{"mlp up", 768, 3072},
        LinearShape{"mlp down", 3072, 768}, LinearShape{"head", 768, 50257}}) {
    const strata::cpu::LinearDims dims{.tokens = tokens,
                                       .in = shape.in,
                                       .out = shape.out,
                                       .dtype = dtype,
                                       .gradient_dtype = DType::f32,
                                       .bias = shape.out != 50257};
    const double flops = 2.0 * static_cast<double>(tokens * shape.in * shape.out);
    rows.push_back({shape.name + " forward", flops, [dims, &memory] {
                      auto* x = memory.tensor(dims.dtype, dims.tokens * dims.in);
                      auto* weight = memory.tensor(dims.dtype, dims.out * dims.in);
                      auto* bias = memory.tensor(dims.dtype, dims.out);
                      auto* y = memory.tensor(dims.dtype, dims.tokens * dims.out);
                      auto workspace = memory.take(strata::cpu::linear_forward_workspace_bytes(dims, false));
                      return [=] {
                        strata::cpu::linear_forward(dims, x, weight, dims.bias ? bias : nullptr, y, false, workspace);
                      };
                    }});
    rows.push_back({shape.name + " dx", flops, [dims, &memory] {
                      auto* dy = memory.tensor(dims.dtype, dims.tokens * dims.out);
                      auto* weight = memory.tensor(dims.dtype, dims.out * dims.in);
                      auto* dx = memory.tensor(dims.dtype, dims.tokens * dims.in);
                      auto workspace = memory.take(strata::cpu::linear_backward_input_workspace_bytes(dims, false));
                      return [=] { strata::cpu::linear_backward_input(dims, dy, weight, dx, false, workspace); };
                    }});
    rows.push_back({shape.name + " dW", flops, [dims, &memory] {
                      auto* dy = memory.tensor(dims.dtype, dims.tokens * dims.out);
                      auto* x = memory.tensor(dims.dtype, dims.tokens * dims.in);
                      auto* dweight = memory.tensor(dims.gradient_dtype, dims.out * dims.in);
                      auto* dbias = memory.tensor(dims.gradient_dtype, dims.out);
                      auto workspace = memory.take(strata::cpu::linear_backward_weight_workspace_bytes(dims, false));
                      return [=] {
                        strata::cpu::linear_backward_weight(dims, dy, x, dweight, dims.bias ? dbias : nullptr, {},
                                                            workspace);
                      };
                    }});
  }
  return rows;
}

std::vector<Row> convolution_rows(DType dtype, bool winograd, Memory& memory) {
  struct Shape {
    std::int64_t images, size, in, out;
  };
  std::vector<Row> rows;
  for (const Shape& shape :
       {Shape{8, 224, 3, 64}, Shape{8, 224, 64, 64}, Shape{8, 112, 64, 128}, Shape{8, 112, 128, 128},
        Shape{8, 56, 256, 256}, Shape{8, 28, 512, 512}, Shape{8, 14, 512, 512}, Shape{32, 32, 64, 64},
        Shape{32, 16, 128, 128}, Shape{32, 8, 256, 256}, Shape{32, 4, 512, 512}, Shape{32, 2, 512, 512}}) {
    const strata::cpu::ConvolutionDims dims{.images = shape.images,
                                            .height = shape.size,
                                            .width = shape.size,
                                            .in = shape.in,
                                            .out = shape.out,
                                            .dtype = dtype,
                                            .bias = true,
                                            .winograd = winograd};
    const std::int64_t x_size = shape.images * shape.size * shape.size * shape.in;
    const std::int64_t y_size = shape.images * shape.size * shape.size * shape.out;
    const std::int64_t weight_size = shape.out * shape.in * 9;
    const double flops = 18.0 * static_cast<double>(y_size * shape.in);
    const std::string name = fmt::format("{} x {}px {}->{}", shape.images, shape.size, shape.in, shape.out);
    rows.push_back({name + " forward", flops, [=, &memory] {
                      auto* x = memory.tensor(dtype, x_size);
                      auto* weight = memory.tensor(dtype, weight_size);
                      auto* bias = memory.tensor(dtype, dims.out);
                      auto* y = memory.tensor(dtype, y_size);
                      auto workspace = memory.take(strata::cpu::convolution_forward_workspace_bytes(dims));
                      return [=] { strata::cpu::convolution_forward(dims, x, weight, bias, y, workspace); };
                    }});
    if (shape.in > 3) {
      rows.push_back({name + " dx", flops, [=, &memory] {
                        auto* dy = memory.tensor(dtype, y_size);
                        auto* weight = memory.tensor(dtype, weight_size);
                        auto* dx = memory.tensor(dtype, x_size);
                        auto workspace = memory.take(strata::cpu::convolution_backward_input_workspace_bytes(dims));
                        return [=] { strata::cpu::convolution_backward_input(dims, dy, weight, dx, workspace); };
                      }});
    }
    rows.push_back(
        {name + " dW", flops, [=, &memory] {
           auto* dy = memory.tensor(dtype, y_size);
           auto* x = memory.tensor(dtype, x_size);
           auto* dweight = memory.tensor(DType::f32, weight_size);
           auto* dbias = memory.tensor(DType::f32, dims.out);
           auto workspace = memory.take(strata::cpu::convolution_backward_weight_workspace_bytes(dims, false));
           return [=] { strata::cpu::convolution_backward_weight(dims, dy, x, dweight, dbias, false, workspace); };
         }});
  }
  return rows;
}

void measure(const std::string& title, DType dtype, double target, int num_rounds, std::vector<Row> rows,
             Memory& memory) {
  double peak_flops = 0;
  for (int round = 0; round < num_rounds; ++round) {
    peak_flops = std::max(
        peak_flops, strata::cpu::measure_product_rates(dtype, std::array<std::int64_t, 3>{1024, 2048, 4096}, 1.0).best);
    for (Row& row : rows) {
      memory.restart();
      const std::function<void()> run = row.prepare();
      run();
      double spent_seconds = 0;
      for (int count = 0; count < 2 || (spent_seconds < 0.1 && count < 20); ++count) {
        const double seconds = seconds_of(run);
        spent_seconds += seconds;
        row.best_seconds = std::min(row.best_seconds, seconds);
      }
    }
  }
  fmt::print("{} {}, {} thread(s): oneDNN's best square product {:.0f} GFLOP/s = 1.00\n", title, to_string(dtype),
             omp_get_max_threads(), peak_flops * 1e-9);
  double total_seconds = 0;
  double total_flops = 0;
  for (const Row& row : rows) {
    const double rate = row.flops / row.best_seconds;
    total_seconds += row.best_seconds;
    total_flops += row.flops;
    fmt::print("  {:<32}{:9.2f} ms {:8.0f} GFLOP/s {:6.2f}{}\n", row.name, row.best_seconds * 1e3, rate * 1e-9,
               rate / peak_flops, rate < target * peak_flops ? "  below target" : "");
  }
  fmt::print("  {:<32}{:9.2f} ms {:8.0f} GFLOP/s {:6.2f}  (target of a row {:.2f})\n\n", "all rows",
             total_seconds * 1e3, total_flops / total_seconds * 1e-9, total_flops / total_seconds / peak_flops, target);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "all";
  const std::string dtypes = argc > 2 ? argv[2] : "all";
  const int num_rounds = argc > 3 ? std::max(1, std::atoi(argv[3])) : 3;
  Memory memory(std::int64_t{2} << 30);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    if (dtypes != "all" && dtypes != to_string(dtype)) {
      continue;
    }
    const double target = dtype == DType::f32 ? 0.85 : 0.6;
    if (what == "all" || what == "linear") {
      measure("linear", dtype, target, num_rounds, linear_rows(dtype, memory), memory);
    }
    if (what == "all" || what == "convolution") {
      measure("convolution", dtype, target, num_rounds, convolution_rows(dtype, false, memory), memory);
    }
    if (what == "all" || what == "winograd") {
      measure("convolution by Winograd", dtype, target, num_rounds, convolution_rows(dtype, true, memory), memory);
    }
  }
  return 0;
}
