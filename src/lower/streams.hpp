#pragma once

namespace strata {

/// Stream numbers of every Program that is lowered here.
constexpr int compute_stream = 0;
constexpr int communication_stream = 1;

}  // namespace strata
