#include "exec/cpu/kernels/winograd_choice.hpp"

#include "base/ceil_div.hpp"
#include "base/error.hpp"
#include "exec/cpu/kernels/bf16_unit.hpp"
#include "exec/cpu/kernels/winograd_shape.hpp"

namespace strata::cpu {

namespace winograd {
namespace {

std::int64_t tiles_of_image(const ConvolutionDims& d) {
  constexpr std::int64_t side = tile_out;
  return ceil_div(d.out_height(), side) * ceil_div(d.out_width(), side);
}

/// Of the products that direct sums have, the part that is left; a quarter where nothing is filled up.
double part_of_products(const ConvolutionDims& d) {
  const std::int64_t products = tiles_of_image(d) * tile_points * filled_up(d.in) * filled_up(d.out);
  const std::int64_t direct = d.out_height() * d.out_width() * 9 * d.in * d.out;
  return static_cast<double>(products) / static_cast<double>(direct);
}

}  // namespace
}  // namespace winograd

bool winograd_serves(const ConvolutionDims& d) {
  using namespace winograd;
  if (d.kernel_h != 3 || d.kernel_w != 3 || d.stride != 1 || d.padding > 2) return false;
  if (d.in < block_channels || d.out < block_channels) return false;
  const Bf16Unit unit = d.dtype == DType::bf16 ? bf16_unit() : Bf16Unit::none;
  switch (unit) {
    // The transforms take their time too: what has more than three fifths of the products is left to direct sums.
    case Bf16Unit::none: return part_of_products(d) <= 0.6;
    // Direct sums have twice the rate there. The weights, transformed anew at each call, cost what many tiles do: of
    // 128 tiles direct sums are faster, of 392 they are not (VGG-13's layers on Zen 4).
    case Bf16Unit::dot_products: return part_of_products(d) <= 0.3 && d.images * tiles_of_image(d) >= 256;
    case Bf16Unit::tiles: return false;
  }
  throw InternalError("no such unit");
}

}  // namespace strata::cpu
