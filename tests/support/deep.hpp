#pragma once

/// @file
/// How much of a sweep tests go through: all of it (tests/run.sh --deep), a part, or, under sanitizers, a small part.

#include <cstdlib>

namespace strata {

inline bool is_deep() { return std::getenv("STRATA_DEEP") != nullptr; }

/// Whether sanitizers are compiled in: what a line does to memory they see in its first cases, and they take several
/// times as long for each.
inline bool is_sanitized() {
#ifdef __SANITIZE_ADDRESS__
  return true;
#else
  return false;
#endif
}

}  // namespace strata
