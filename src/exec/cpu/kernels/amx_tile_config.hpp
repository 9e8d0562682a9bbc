#pragma once

/// @file
/// How all products on AMX set up the eight tile registers: each is a whole tile, 16 rows of 64 bytes.

#include <cstdint>

namespace strata::cpu {

/// What the instruction LDTILECFG reads.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t num_rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

/// Not on a stack: the compiler takes the instruction to read eight bytes, and need not write the others there.
inline constexpr TileConfig whole_tiles;

}  // namespace strata::cpu
