#pragma once

/// @file
/// The one-dimensional transforms of Winograd's convolution with six points: four outputs of a kernel of three, F(4,
/// 3), and three outputs of a kernel of four, F(3, 4), which gradients of weights are. Applied along both sides of a 6
/// x 6 tile they give F(4 x 4, 3 x 3) and F(3 x 3, 4 x 4): 36 products where the sum itself has 144.
///
/// The points are 0, ±3/4, ±3/2 and infinity. All constants of the inputs' and outputs' transforms are exact in f32,
/// and in f32 an output of 64 channels is off by at most 4e-7 of the sum of its products' magnitudes; of the points
/// 0, ±1, ±2 and infinity, which need fewer multiplications, it is 2e-6 (after Barabasz et al., "Error analysis and
/// improving the accuracy of Winograd convolution for deep neural networks", 2020).
///
/// Each function reads values `from_step` apart and writes them `to_step` apart; from and to may be the same.

#include <cstdint>

#include "exec/cpu/kernels/vector_math.hpp"

namespace strata::cpu::winograd {

inline constexpr float inner = 0.75F, outer = 1.5F;  ///< the finite points that are not 0, of both signs
inline constexpr float inner2 = inner * inner, outer2 = outer * outer;

/// Six inputs at six points, as both F(4, 3) and F(3, 4) take them.
STRATA_LANES void transform_input(const F32x16* from, int from_step, F32x16* to, int to_step) {
  const F32x16 d0 = from[0], d1 = from[from_step], d2 = from[2 * from_step], d3 = from[3 * from_step],
               d4 = from[4 * from_step], d5 = from[5 * from_step];
  const F32x16 even_inner = d4 - outer2 * d2, odd_inner = inner * (d3 - outer2 * d1);
  const F32x16 even_outer = d4 - inner2 * d2, odd_outer = outer * (d3 - inner2 * d1);
  to[0] = (d4 - (inner2 + outer2) * d2) + inner2 * outer2 * d0;
  to[to_step] = even_inner + odd_inner;
  to[2 * to_step] = even_inner - odd_inner;
  to[3 * to_step] = even_outer + odd_outer;
  to[4 * to_step] = even_outer - odd_outer;
  to[5 * to_step] = (d5 - (inner2 + outer2) * d3) + inner2 * outer2 * d1;
}

/// A kernel of @p taps values, three or four, at six points, over the products of the points' differences.
template <int taps>
STRATA_LANES void transform_kernel(const F32x16* from, int from_step, F32x16* to, int to_step) {
  static_assert(taps == 3 || taps == 4);
  constexpr float at_0 = 1.0F / (inner2 * outer2), at_inner = 1.0F / (2.0F * inner2 * (inner2 - outer2)),
                  at_outer = 1.0F / (2.0F * outer2 * (outer2 - inner2));
  const F32x16 g0 = from[0], g1 = from[from_step], g2 = from[2 * from_step];
  F32x16 odd_inner = inner * g1, odd_outer = outer * g1;
  F32x16 last = g2;
  if constexpr (taps == 4) {
    last = from[3 * from_step];
    odd_inner += inner * inner2 * last;
    odd_outer += outer * outer2 * last;
  }
  const F32x16 even_inner = g0 + inner2 * g2, even_outer = g0 + outer2 * g2;
  to[0] = at_0 * g0;
  to[to_step] = at_inner * (even_inner + odd_inner);
  to[2 * to_step] = at_inner * (even_inner - odd_inner);
  to[3 * to_step] = at_outer * (even_outer + odd_outer);
  to[4 * to_step] = at_outer * (even_outer - odd_outer);
  to[5 * to_step] = last;
}

/// Products at six points to @p outputs outputs: four of a kernel of three, three of a kernel of four.
template <int outputs>
STRATA_LANES void transform_output(const F32x16* from, int from_step, F32x16* to, int to_step) {
  static_assert(outputs == 3 || outputs == 4);
  const F32x16 m0 = from[0], m5 = from[5 * from_step];
  const F32x16 even_inner = from[from_step] + from[2 * from_step], odd_inner = from[from_step] - from[2 * from_step];
  const F32x16 even_outer = from[3 * from_step] + from[4 * from_step],
               odd_outer = from[3 * from_step] - from[4 * from_step];
  to[0] = m0 + (even_inner + even_outer);
  to[to_step] = inner * odd_inner + outer * odd_outer;
  const F32x16 second = inner2 * even_inner + outer2 * even_outer;
  if constexpr (outputs == 3) {
    to[2 * to_step] = second + m5;
  } else {
    to[2 * to_step] = second;
    to[3 * to_step] = (inner * inner2 * odd_inner + outer * outer2 * odd_outer) + m5;
  }
}

}  // namespace strata::cpu::winograd
