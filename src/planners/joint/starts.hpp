#pragma once

/// @file
/// Where decisions are tried first.

#include <cstdint>
#include <span>
#include <vector>

#include "planners/joint/known_plans.hpp"

namespace strata {

/// Times the best plan's seconds that a plan may take for decisions to be tried from it where memory is short.
inline constexpr double far_where_memory_is_short = 1.75;

/// Of @p plans, which no decision was tried from, the best of each number of places and of tensor ranks, with layouts
/// and without, with products on rings and without, unless it is far behind; where it is close, of each number of
/// stages and of micro-batches; up to twice @p beam, and up to @p beam where none fits. Of plans that run blocks again
/// since memory is short, how far says little: which blocks, and what else saves as much, is not tried yet.
std::vector<const KnownPlan*> best_of_different_degrees(std::span<const KnownPlan* const> plans, std::int64_t beam);

}  // namespace strata
