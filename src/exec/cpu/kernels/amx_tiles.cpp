/// @file
/// Four tiles of C, two of A by two of B, are summed at a time: the eight tile registers allow no larger block, and
/// each tile loaded is used twice.

#include "exec/cpu/kernels/amx_tiles.hpp"

// GCC 12 takes the undefined merge operands of its own intrinsics for uninitialised variables (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#include <immintrin.h>

#include <algorithm>

#include "exec/cpu/kernels/lane_transpose.hpp"

// Compiled for AMX whatever -march says: amx_available() decides at run time.
#define STRATA_AMX [[gnu::target("avx512f,amx-tile,amx-bf16")]]

namespace strata::cpu {

namespace {

struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t num_rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

/// words[line] = 32 values of k of a line; zero beyond num_lines and num_k.
STRATA_LANES void load_lines(const bf16* source, std::int64_t ld, std::int64_t num_lines, std::int64_t num_k,
                             U32x16 (&words)[16]) {
  const auto row_bytes = static_cast<std::size_t>(std::clamp<std::int64_t>(num_k, 0, step_k)) * sizeof(bf16);
  for (int line = 0; line < 16; ++line) {
    words[line] = U32x16{};
    if (line < num_lines) {
      if (row_bytes == sizeof(U32x16)) {
        std::memcpy(&words[line], source + line * ld, sizeof(U32x16));
      } else {
        std::memcpy(&words[line], source + line * ld, row_bytes);
      }
    }
  }
}

/// words[p], lane l = values 2p and 2p + 1 of k of line l; zero beyond num_lines and num_k.
STRATA_LANES void load_pairs(const bf16* source, std::int64_t ld, std::int64_t num_lines, std::int64_t num_k,
                             U32x16 (&words)[16]) {
  const auto row_bytes = static_cast<std::size_t>(std::clamp<std::int64_t>(num_lines, 0, 16)) * sizeof(bf16);
  const auto row = [&](std::int64_t k) {
    U16x16 values{};
    if (k < num_k) {
      if (row_bytes == sizeof values) {
        std::memcpy(&values, source + k * ld, sizeof values);
      } else {
        std::memcpy(&values, source + k * ld, row_bytes);
      }
    }
    return __builtin_convertvector(values, U32x16);
  };
  for (int pair = 0; pair < 16; ++pair) {
    words[pair] = row(2 * pair) | (row(2 * pair + 1) << 16U);
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

}  // namespace

void pack_panels(PlainLines source, TileSide side, std::int64_t num_panels, std::int64_t num_steps, bf16* packed) {
  const bool k_contiguous = source.order == LineOrder::k_contiguous;
  for (std::int64_t panel = 0; panel < num_panels; ++panel) {
    for (std::int64_t step = 0; step < num_steps; ++step) {
      for (std::int64_t half = 0; half < 2; ++half, packed += tile_values) {
        const std::int64_t line = panel * panel_lines + half * 16;
        const std::int64_t k = step * step_k;
        const std::int64_t lines_left = source.num_lines - line;
        const std::int64_t k_left = source.num_k - k;
        U32x16 words[16];
        if (k_contiguous) {
          load_lines(source.data + line * source.ld + k, source.ld, lines_left, k_left, words);
        } else {
          load_pairs(source.data + k * source.ld + line, source.ld, lines_left, k_left, words);
        }
        if (k_contiguous != (side == TileSide::rows_of_a)) {
          transpose_words(words);
        }
        std::memcpy(static_cast<void*>(packed), words, sizeof words);
      }
    }
  }
}

STRATA_AMX void multiply_panels(const PackedPanels& a, const PackedPanels& b, std::int64_t num_steps, float* c,
                                std::int64_t ldc, bool add) {
  const TileConfig config;
  _tile_loadconfig(&config);
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

}  // namespace strata::cpu
