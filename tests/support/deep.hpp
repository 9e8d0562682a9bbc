#pragma once

/// @file
/// Whether tests go through all of what they otherwise take a part of: tests/run.sh --deep.

#include <cstdlib>

namespace strata {

inline bool is_deep() { return std::getenv("STRATA_DEEP") != nullptr; }

}  // namespace strata
