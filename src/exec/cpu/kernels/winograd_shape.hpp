#pragma once

/// @file
/// Sizes of F(4 x 4, 3 x 3): what its kernels (winograd.cpp) and the choice of it (winograd_choice.cpp)
/// share.

#include <cstdint>

#include "base/ceil_div.hpp"

namespace strata::cpu::winograd {

inline constexpr int points = 6;  ///< of one dimension
inline constexpr int tile_points = points * points;
inline constexpr int tile_out = 4;         ///< outputs of one dimension that a tile gives
inline constexpr int block_channels = 16;  ///< one vector
inline constexpr int panel_channels = 32;  ///< to which all channels are filled up with zeros

constexpr std::int64_t filled_up(std::int64_t channels) { return ceil_div(channels, panel_channels) * panel_channels; }

}  // namespace strata::cpu::winograd
