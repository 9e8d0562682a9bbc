/// @file
/// RMS norm, with the loops of layer_norm.cpp less the mean and the bias.

#include "exec/cpu/kernels/rms_norm.hpp"

#include <cmath>
#include <cstring>

#include "exec/cpu/kernels/row_blocks.hpp"

namespace strata::cpu {

namespace {

template <typename T>
void forward(const RmsNormDims& dims, const T* x, const T* weight, T* y, float* statistics) {
  const std::int64_t width = dims.width;
#pragma omp parallel for schedule(static)
  for (std::int64_t row = 0; row < dims.rows; ++row) {
    const T* x_row = x + row * width;
    T* y_row = y + row * width;
    F32x16 squares{};
    for_lanes(width, [&](std::int64_t i, auto lanes) {
      const F32x16 v = load(x_row + i, lanes);
      squares += v * v;
    });
    const float scale = 1.0F / std::sqrt(sum_lanes(squares) / static_cast<float>(width) + dims.epsilon);
    for_lanes(width, [&](std::int64_t i, auto lanes) {
      store(y_row + i, load(x_row + i, lanes) * scale * load(weight + i, lanes), lanes);
    });
    statistics[row] = scale;
  }
}

template <typename T>
void backward_rows(const RmsNormDims& dims, const T* dy, const T* x, const T* weight, const float* statistics, T* dx,
                   bool accumulate_dx, float* partials) {
  const std::int64_t width = dims.width;
  const RowBlocks blocks{dims.rows};
#pragma omp parallel for schedule(static)
  for (std::int64_t block = 0; block < blocks.num_blocks(); ++block) {
    float* dweight = partials + block * width;
    std::memset(dweight, 0, sizeof(float) * static_cast<std::size_t>(width));
    for (std::int64_t row = blocks.begin(block); row < blocks.end(block); ++row) {
      const T* dy_row = dy + row * width;
      const T* x_row = x + row * width;
      T* dx_row = dx + row * width;
      const float scale = statistics[row];
      F32x16 sum_gx{};
      for_lanes(width, [&](std::int64_t i, auto lanes) {
        const F32x16 scaled = load(x_row + i, lanes) * scale;
        const F32x16 d_scaled = load(dy_row + i, lanes) * scaled;
        sum_gx += d_scaled * load(weight + i, lanes);
        store(dweight + i, load(dweight + i, lanes) + d_scaled, lanes);
      });
      const float mean_gx = sum_lanes(sum_gx) / static_cast<float>(width);
      for_lanes(width, [&](std::int64_t i, auto lanes) {
        const F32x16 scaled = load(x_row + i, lanes) * scale;
        const F32x16 g = load(dy_row + i, lanes) * load(weight + i, lanes);
        F32x16 d = scale * (g - scaled * mean_gx);
        if (accumulate_dx) {
          d += load(dx_row + i, lanes);
        }
        store(dx_row + i, d, lanes);
      });
    }
  }
}

}  // namespace

void rms_norm_forward(const RmsNormDims& dims, const void* x, const void* weight, void* y, float* statistics) {
  with_storage(dims.dtype, [&]<typename T>() {
    forward(dims, static_cast<const T*>(x), static_cast<const T*>(weight), static_cast<T*>(y), statistics);
  });
}

std::int64_t rms_norm_backward_workspace_bytes(const RmsNormDims& dims) {
  return RowBlocks{dims.rows}.workspace_bytes(dims.width);
}

void rms_norm_backward(const RmsNormDims& dims, const RmsNormBackwardOperands& operands,
                       const RmsNormAccumulate& accumulate, std::span<std::byte> workspace) {
  require_workspace(workspace, rms_norm_backward_workspace_bytes(dims), "rms_norm_backward");
  auto* partials = reinterpret_cast<float*>(workspace.data());
  with_storage(dims.dtype, [&]<typename T>() {
    backward_rows(dims, static_cast<const T*>(operands.dy), static_cast<const T*>(operands.x),
                  static_cast<const T*>(operands.weight), operands.statistics, static_cast<T*>(operands.dx),
                  accumulate.dx, partials);
  });
  with_storage(dims.gradient_dtype, [&]<typename G>() {
    add_row_blocks(RowBlocks{dims.rows}, partials, dims.width, dims.width, static_cast<G*>(operands.dweight),
                   accumulate.dweight);
  });
}

}  // namespace strata::cpu
