#pragma once

/// @file
/// Stream numbers of every Program that is lowered here; links between stages follow.

namespace strata {

constexpr int compute_stream = 0;
constexpr int communication_stream = 1;

}  // namespace strata
