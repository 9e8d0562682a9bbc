#pragma once

/// @file
/// bf16 operands packed into tiles, and products of packed operands on AMX, whose tiles they are, or on VDPBF16PS. A
/// tile is 16 rows of 64 bytes. An operand of a product is cut into panels of 32 lines (rows of A, columns of B); a
/// panel is, for each 32 values of the inner dimension k, two tiles of 16 lines.

#include <cstdint>

#include "base/dtype.hpp"
#include "exec/cpu/kernels/vector_math.hpp"

namespace strata::cpu {

inline constexpr std::int64_t tile_values = 512;              // bf16 values of a tile
inline constexpr std::int64_t panel_lines = 32;               // rows of A, or columns of B
inline constexpr std::int64_t step_k = 32;                    // values of k in a tile
inline constexpr std::int64_t step_values = 2 * tile_values;  // of a panel, at one step of k

/// How a tile is stored: rows_of_a has a line in each row; columns_of_b has in row p, for each of 16 columns, the
/// values 2p and 2p + 1 of k side by side.
enum class TileSide : std::uint8_t { rows_of_a, columns_of_b };

/// How the operand lies in memory: line after line with k contiguous, or k after k with lines contiguous.
enum class LineOrder : std::uint8_t { k_contiguous, lines_contiguous };

/// An operand before it is packed.
struct PlainLines {
  const bf16* data = nullptr;
  std::int64_t ld = 0;  ///< elements from one line, or one k, to the next
  LineOrder order = LineOrder::k_contiguous;
  std::int64_t num_lines = 0;
  std::int64_t num_k = 0;
};

/// Packs num_panels x num_steps; whatever is beyond num_lines and num_k is zero.
/// @param packed [num_panels][num_steps][step_values], 64-byte aligned.
void pack_panels(PlainLines source, TileSide side, std::int64_t num_panels, std::int64_t num_steps, bf16* packed);

/// One packed operand: panel p begins p · panel_values after `data`.
struct PackedPanels {
  const bf16* data;
  std::int64_t num_panels;
  std::int64_t panel_values;
};

/// C[32 · a.num_panels, 32 · b.num_panels] = or += A · B over num_steps steps of k; f32. Requires a bf16_unit().
/// The tile registers are set up and released inside.
void multiply_panels(const PackedPanels& a, const PackedPanels& b, std::int64_t num_steps, float* c, std::int64_t ldc,
                     bool add);

/// Two rows of 16 values as bf16, the second above the first; and the same values in pairs, first and second side by
/// side.
struct NarrowPair {
  U16x16 first;
  U16x16 second;
  U32x16 interleaved;
};
STRATA_LANES NarrowPair narrow_pair(F32x16 first, F32x16 second) {
#if defined(__AVX512BF16__)
  using U16x32 = std::uint16_t __attribute__((vector_size(64)));
  const auto both = std::bit_cast<U16x32>(_mm512_cvtne2ps_pbh(second, first));
  return {
      __builtin_shufflevector(both, both, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
      __builtin_shufflevector(both, both, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31),
      std::bit_cast<U32x16>(__builtin_shufflevector(both, both, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23,
                                                    8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31))};
#else
  const U16x16 low = narrow(first);
  const U16x16 high = narrow(second);
  return {low, high, __builtin_convertvector(low, U32x16) | (__builtin_convertvector(high, U32x16) << 16U)};
#endif
}

}  // namespace strata::cpu
