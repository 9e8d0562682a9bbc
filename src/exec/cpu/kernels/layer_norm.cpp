/// @file
/// Layer norm: threads share out rows forward and blocks of rows backward. A row stays in the first-level cache between
/// its passes.

#include "exec/cpu/kernels/layer_norm.hpp"

#include <cmath>
#include <cstring>

#include "exec/cpu/kernels/row_blocks.hpp"

namespace strata::cpu {

namespace {

template <typename T>
void forward(const LayerNormDims& dims, const T* x, const T* weight, const T* bias, T* y, float* statistics) {
  const std::int64_t width = dims.width;
#pragma omp parallel for schedule(static)
  for (std::int64_t row = 0; row < dims.rows; ++row) {
    const T* x_row = x + row * width;
    T* y_row = y + row * width;
    F32x16 sum{};
    for_lanes(width, [&](std::int64_t i, auto lanes) { sum += load(x_row + i, lanes); });
    const float mean = sum_lanes(sum) / static_cast<float>(width);
    F32x16 squares{};
    for_lanes(width, [&](std::int64_t i, auto lanes) {
      const F32x16 d = keep(load(x_row + i, lanes) - mean, 0.0F, lanes);
      squares += d * d;
    });
    const float rstd = 1.0F / std::sqrt(sum_lanes(squares) / static_cast<float>(width) + dims.epsilon);
    for_lanes(width, [&](std::int64_t i, auto lanes) {
      const F32x16 normalised = (load(x_row + i, lanes) - mean) * rstd;
      store(y_row + i, normalised * load(weight + i, lanes) + load(bias + i, lanes), lanes);
    });
    statistics[2 * row] = mean;
    statistics[2 * row + 1] = rstd;
  }
}

template <typename T>
void backward_rows(const LayerNormDims& dims, const T* dy, const T* x, const T* weight, const float* statistics, T* dx,
                   bool accumulate_dx, float* partials) {
  const std::int64_t width = dims.width;
  const RowBlocks blocks{dims.rows};
#pragma omp parallel for schedule(static)
  for (std::int64_t block = 0; block < blocks.num_blocks(); ++block) {
    float* dweight = partials + 2 * block * width;
    float* dbias = dweight + width;
    std::memset(dweight, 0, sizeof(float) * static_cast<std::size_t>(2 * width));
    for (std::int64_t row = blocks.begin(block); row < blocks.end(block); ++row) {
      const T* dy_row = dy + row * width;
      const T* x_row = x + row * width;
      T* dx_row = dx + row * width;
      const float mean = statistics[2 * row];
      const float rstd = statistics[2 * row + 1];
      F32x16 sum_g{};
      F32x16 sum_gx{};
      for_lanes(width, [&](std::int64_t i, auto lanes) {  // lanes beyond the row have dy = 0
        const F32x16 normalised = (load(x_row + i, lanes) - mean) * rstd;
        const F32x16 d = load(dy_row + i, lanes);
        const F32x16 g = d * load(weight + i, lanes);
        sum_g += g;
        sum_gx += g * normalised;
        store(dweight + i, load(dweight + i, lanes) + d * normalised, lanes);
        store(dbias + i, load(dbias + i, lanes) + d, lanes);
      });
      const float mean_g = sum_lanes(sum_g) / static_cast<float>(width);
      const float mean_gx = sum_lanes(sum_gx) / static_cast<float>(width);
      for_lanes(width, [&](std::int64_t i, auto lanes) {
        const F32x16 normalised = (load(x_row + i, lanes) - mean) * rstd;
        const F32x16 g = load(dy_row + i, lanes) * load(weight + i, lanes);
        F32x16 d = rstd * (g - mean_g - normalised * mean_gx);
        if (accumulate_dx) {
          d += load(dx_row + i, lanes);
        }
        store(dx_row + i, d, lanes);
      });
    }
  }
}

}  // namespace

void layer_norm_forward(const LayerNormDims& dims, const void* x, const void* weight, const void* bias, void* y,
                        float* statistics) {
  with_storage(dims.dtype, [&]<typename T>() {
    forward(dims, static_cast<const T*>(x), static_cast<const T*>(weight), static_cast<const T*>(bias),
            static_cast<T*>(y), statistics);
  });
}

std::int64_t layer_norm_backward_workspace_bytes(const LayerNormDims& dims) {
  return RowBlocks{dims.rows}.workspace_bytes(2 * dims.width);
}

void layer_norm_backward(const LayerNormDims& dims, const LayerNormBackwardOperands& operands,
                         const LayerNormAccumulate& accumulate, std::span<std::byte> workspace) {
  require_workspace(workspace, layer_norm_backward_workspace_bytes(dims), "layer_norm_backward");
  auto* partials = reinterpret_cast<float*>(workspace.data());
  with_storage(dims.dtype, [&]<typename T>() {
    backward_rows(dims, static_cast<const T*>(operands.dy), static_cast<const T*>(operands.x),
                  static_cast<const T*>(operands.weight), operands.statistics, static_cast<T*>(operands.dx),
                  accumulate.dx, partials);
  });
  with_storage(dims.gradient_dtype, [&]<typename G>() {
    const RowBlocks blocks{dims.rows};
    const std::int64_t stride = 2 * dims.width;
    add_row_blocks(blocks, partials, stride, dims.width, static_cast<G*>(operands.dweight), accumulate.dweight);
    add_row_blocks(blocks, partials + dims.width, stride, dims.width, static_cast<G*>(operands.dbias),
                   accumulate.dbias);
  });
}

}  // namespace strata::cpu
