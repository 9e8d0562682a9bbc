#pragma once

/// @file
/// Which convolutions the CPU makes by Winograd's transforms (kernels/winograd.hpp), and which as direct sums.

#include <cstdint>
#include <string>

#include "base/ceil_div.hpp"
#include "exec/cpu/numerics.hpp"
#include "exec/cpu/winograd_shape.hpp"
#include "exec/kernel_dims.hpp"
#include "ir/program/program.hpp"

namespace strata::cpu {

/// F(4 x 4, 3 x 3) can make a convolution of this shape, and has few enough products to be the faster way.
inline bool winograd_serves(const ConvolutionDims& d) {
  using namespace winograd;
  if (d.dtype != DType::f32 || d.kernel_h != 3 || d.kernel_w != 3 || d.stride != 1 || d.padding > 2) return false;
  if (d.in < block_channels || d.out < block_channels) return false;
  constexpr std::int64_t side = tile_out;
  const std::int64_t tiles = ceil_div(d.out_height(), side) * ceil_div(d.out_width(), side);
  const std::int64_t products = tiles * tile_points * filled_up(d.in) * filled_up(d.out);
  const std::int64_t direct = d.out_height() * d.out_width() * 9 * d.in * d.out;
  // The transforms take their time too: what has more than three fifths of the products is left to direct sums.
  return 5 * products <= 3 * direct;
}

/// Of all convolutions of @p program: "winograd", "direct" or "winograd and direct"; empty where it has none.
std::string convolutions_of(const Program& program, const Numerics& numerics);

}  // namespace strata::cpu
