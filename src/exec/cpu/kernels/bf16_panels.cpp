/// @file
/// On AMX four tiles of C, two of A by two of B, are summed at a time: the eight tile registers allow no larger block,
/// and each tile loaded is used twice. On VDPBF16PS it is the block of dot_block.hpp.

#include "exec/cpu/kernels/bf16_panels.hpp"

// GCC 12 takes the undefined merge operands of its own intrinsics for uninitialised variables (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#include <immintrin.h>

#include <algorithm>

#include "exec/cpu/kernels/amx_tile_config.hpp"
#include "exec/cpu/kernels/bf16_unit.hpp"
#include "exec/cpu/kernels/dot_block.hpp"
#include "exec/cpu/kernels/lane_transpose.hpp"

// Compiled for AMX whatever -march says: bf16_unit() decides at run time.
#define STRATA_AMX [[gnu::target("avx512f,amx-tile,amx-bf16")]]

namespace strata::cpu {

namespace {

/// Lines and values of k of a tile that the operand has.
struct WholeTile {};
struct PartOfTile {
  std::int64_t num_lines;
  std::int64_t num_k;
};

/// words[line] = 32 values of k of a line.
STRATA_LANES void load_lines(const bf16* source, std::int64_t ld, WholeTile, U32x16 (&words)[16]) {
#pragma GCC unroll 16
  for (int line = 0; line < 16; ++line) {
    std::memcpy(&words[line], source + line * ld, sizeof(U32x16));
  }
}
/// Zero beyond the part.
STRATA_LANES void load_lines(const bf16* source, std::int64_t ld, PartOfTile part, U32x16 (&words)[16]) {
  const auto row_bytes = static_cast<std::size_t>(std::clamp<std::int64_t>(part.num_k, 0, step_k)) * sizeof(bf16);
  for (int line = 0; line < 16; ++line) {
    words[line] = U32x16{};
    if (line < part.num_lines) {
      std::memcpy(&words[line], source + line * ld, row_bytes);
    }
  }
}

STRATA_LANES U32x16 interleave(U16x16 even, U16x16 odd) {
  return __builtin_convertvector(even, U32x16) | (__builtin_convertvector(odd, U32x16) << 16U);
}
/// words[p], lane l = values 2p and 2p + 1 of k of line l.
STRATA_LANES void load_pairs(const bf16* source, std::int64_t ld, WholeTile, U32x16 (&words)[16]) {
#pragma GCC unroll 16
  for (int pair = 0; pair < 16; ++pair) {
    U16x16 even;
    U16x16 odd;
    std::memcpy(&even, source + 2 * pair * ld, sizeof even);
    std::memcpy(&odd, source + (2 * pair + 1) * ld, sizeof odd);
    words[pair] = interleave(even, odd);
  }
}
/// Zero beyond the part.
STRATA_LANES void load_pairs(const bf16* source, std::int64_t ld, PartOfTile part, U32x16 (&words)[16]) {
  const auto row_bytes = static_cast<std::size_t>(std::clamp<std::int64_t>(part.num_lines, 0, 16)) * sizeof(bf16);
  const auto row = [&](std::int64_t k) {
    U16x16 values{};
    if (k < part.num_k) {
      std::memcpy(&values, source + k * ld, row_bytes);
    }
    return values;
  };
  for (int pair = 0; pair < 16; ++pair) {
    words[pair] = interleave(row(2 * pair), row(2 * pair + 1));
  }
}

/// One tile of an operand: 16 lines by 32 values of k.
/// @param corner its first value in memory
template <typename Extent>
STRATA_LANES void pack_tile(const bf16* corner, std::int64_t ld, LineOrder order, TileSide side, Extent extent,
                            bf16* tile) {
  const bool k_contiguous = order == LineOrder::k_contiguous;
  U32x16 words[16];
  if (k_contiguous) {
    load_lines(corner, ld, extent, words);
  } else {
    load_pairs(corner, ld, extent, words);
  }
  if (k_contiguous != (side == TileSide::rows_of_a)) {
    transpose_words(words);
  }
#pragma GCC unroll 16
  for (int row = 0; row < 16; ++row) {
    std::memcpy(static_cast<void*>(tile + row * 32), &words[row], sizeof words[row]);
  }
}

/// 32 x 32 values of C.
STRATA_AMX inline void multiply_block(const bf16* a, const bf16* b, std::int64_t num_steps, float* c, std::int64_t ldc,
                                      bool add) {
  const auto stride = static_cast<std::size_t>(ldc) * sizeof(float);
  float* lower = c + 16 * ldc;
  if (add) {
    _tile_loadd(0, c, stride);
    _tile_loadd(1, c + 16, stride);
    _tile_loadd(2, lower, stride);
    _tile_loadd(3, lower + 16, stride);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (std::int64_t step = 0; step < num_steps; ++step) {
    _tile_loadd(4, a, 64);
    _tile_loadd(6, b, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + tile_values, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a + tile_values, 64);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    a += step_values;
    b += step_values;
  }
  _tile_stored(0, c, stride);
  _tile_stored(1, c + 16, stride);
  _tile_stored(2, lower, stride);
  _tile_stored(3, lower + 16, stride);
}

STRATA_AMX void multiply_on_tiles(const PackedPanels& a, const PackedPanels& b, std::int64_t num_steps, float* c,
                                  std::int64_t ldc, bool add) {
  _tile_loadconfig(&whole_tiles);
  asm volatile("" ::: "memory");  // the tile instructions are opaque to the compiler: operands must be in memory,
  for (std::int64_t i = 0; i < a.num_panels; ++i) {
    for (std::int64_t j = 0; j < b.num_panels; ++j) {
      multiply_block(a.data + i * a.panel_values, b.data + j * b.panel_values, num_steps,
                     c + i * panel_lines * ldc + j * panel_lines, ldc, add);
    }
  }
  asm volatile("" ::: "memory");  // and C is read from it
  _tile_release();
}

STRATA_DOT void multiply_on_dots(const PackedPanels& a, const PackedPanels& b, std::int64_t num_steps, float* c,
                                 std::int64_t ldc, bool add) {
  for (std::int64_t i = 0; i < a.num_panels; ++i) {
    for (std::int64_t j = 0; j < b.num_panels; ++j) {
      for (std::int64_t row = 0; row < panel_lines; row += dot_rows) {
        multiply_dot_rows(a.data + i * a.panel_values + row / 16 * tile_values + row % 16 * step_k,
                          b.data + j * b.panel_values, num_steps, c + (i * panel_lines + row) * ldc + j * panel_lines,
                          ldc, add);
      }
    }
  }
}

}  // namespace

void pack_panels(PlainLines source, TileSide side, std::int64_t num_panels, std::int64_t num_steps, bf16* packed) {
  // Storage order outside, so that memory is read in long runs: line after line, or k after k.
  const bool k_contiguous = source.order == LineOrder::k_contiguous;
  for (std::int64_t index = 0; index < num_panels * num_steps; ++index) {
    const std::int64_t panel = k_contiguous ? index / num_steps : index % num_panels;
    const std::int64_t step = k_contiguous ? index % num_steps : index / num_panels;
    for (std::int64_t half = 0; half < 2; ++half) {
      const std::int64_t line = panel * panel_lines + half * 16;
      const std::int64_t k = step * step_k;
      const bf16* const corner = source.data + (k_contiguous ? line * source.ld + k : k * source.ld + line);
      bf16* const tile = packed + (panel * num_steps + step) * step_values + half * tile_values;
      if (line + 16 <= source.num_lines && k + step_k <= source.num_k) {
        pack_tile(corner, source.ld, source.order, side, WholeTile{}, tile);
      } else {
        pack_tile(corner, source.ld, source.order, side, PartOfTile{source.num_lines - line, source.num_k - k}, tile);
      }
    }
  }
}

void multiply_panels(const PackedPanels& a, const PackedPanels& b, std::int64_t num_steps, float* c, std::int64_t ldc,
                     bool add) {
  if (bf16_unit() == Bf16Unit::tiles) {
    multiply_on_tiles(a, b, num_steps, c, ldc, add);
  } else {
    multiply_on_dots(a, b, num_steps, c, ldc, add);
  }
}

}  // namespace strata::cpu
