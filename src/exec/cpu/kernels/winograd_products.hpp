#pragma once

/// @file
/// The products of Winograd's convolution at one of its points. Tiles lie as [block of 16 channels][tile][16]: a block
/// of a transform's output is one vector, and both the products over channels (outputs) and those over tiles (gradients
/// of weights) read consecutive lines.
///
/// A block of sums fills the vector registers: of AVX-512 twelve rows by two registers, and eight by two where rows are
/// channels, which come by sixteen; of AVX2, which has half as many registers of half the size, six and four by two.

#include <cstdint>

#include "exec/cpu/kernels/vector_math.hpp"
#include "exec/cpu/kernels/winograd_shape.hpp"

namespace strata::cpu::winograd {

inline constexpr int tile_multiple = 12;  ///< to which tiles are filled up with zeros
#if defined(__AVX512F__)
inline constexpr int tile_rows = 12, channel_rows = 8;
#else
inline constexpr int tile_rows = 6, channel_rows = 4;
#endif
inline constexpr int sum_registers = 2;

/// m[tile, 32] = Σ over channels of v[tile, channel] · u[channel, 32], for tile_multiple tiles.
/// @param v, m the first of the tiles in the first block; blocks of v and m are num_tiles · 16 apart.
/// @param u [16 · num_blocks][32]
STRATA_LANES void multiply_channels(const float* v, const float* u, std::int64_t num_blocks, std::int64_t num_tiles,
                                    float* m) {
  for (int first = 0; first < tile_multiple; first += tile_rows) {
    for (int column = 0; column < panel_channels; column += sum_registers * register_lanes) {
      Register sum[tile_rows][sum_registers] = {};
      const float* from = v + first * block_channels;
      const float* by = u + column;
      for (std::int64_t block = 0; block < num_blocks; ++block, from += num_tiles * block_channels) {
#pragma GCC unroll 4
        for (int channel = 0; channel < block_channels; ++channel, by += panel_channels) {
          Register factor[sum_registers];
#pragma GCC unroll 2
          for (int i = 0; i < sum_registers; ++i) factor[i] = load_register(by + i * register_lanes);
#pragma GCC unroll 12
          for (int row = 0; row < tile_rows; ++row) {
            const float value = from[row * block_channels + channel];
#pragma GCC unroll 2
            for (int i = 0; i < sum_registers; ++i) sum[row][i] += value * factor[i];
          }
        }
      }
#pragma GCC unroll 12
      for (int row = 0; row < tile_rows; ++row) {
#pragma GCC unroll 2
        for (int i = 0; i < sum_registers; ++i) {
          const int channel = column + i * register_lanes;
          float* const to = m + (channel / block_channels * num_tiles + first + row) * block_channels;
          store_register(to + channel % block_channels, sum[row][i]);
        }
      }
    }
  }
}

/// sums[16, 32] = or += Σ over tiles of d[tile, 16] · v[tile, 32].
/// @param d, v the first of the tiles in their first block; blocks of v are num_tiles · 16 apart.
STRATA_LANES void multiply_tiles(const float* d, const float* v, std::int64_t num_tiles, float* sums, bool add) {
  for (int first = 0; first < block_channels; first += channel_rows) {
    for (int column = 0; column < panel_channels; column += sum_registers * register_lanes) {
      Register sum[channel_rows][sum_registers];
      float* const to = sums + first * panel_channels + column;
#pragma GCC unroll 8
      for (int row = 0; row < channel_rows; ++row) {
#pragma GCC unroll 2
        for (int i = 0; i < sum_registers; ++i) {
          sum[row][i] = add ? load_register(to + row * panel_channels + i * register_lanes) : Register{};
        }
      }
      for (std::int64_t tile = 0; tile < num_tiles; ++tile) {
        Register factor[sum_registers];
#pragma GCC unroll 2
        for (int i = 0; i < sum_registers; ++i) {
          const int channel = column + i * register_lanes;
          factor[i] = load_register(v + (channel / block_channels * num_tiles + tile) * block_channels +
                                    channel % block_channels);
        }
#pragma GCC unroll 8
        for (int row = 0; row < channel_rows; ++row) {
          const float value = d[tile * block_channels + first + row];
#pragma GCC unroll 2
          for (int i = 0; i < sum_registers; ++i) sum[row][i] += value * factor[i];
        }
      }
#pragma GCC unroll 8
      for (int row = 0; row < channel_rows; ++row) {
#pragma GCC unroll 2
        for (int i = 0; i < sum_registers; ++i) {
          store_register(to + row * panel_channels + i * register_lanes, sum[row][i]);
        }
      }
    }
  }
}

}  // namespace strata::cpu::winograd
