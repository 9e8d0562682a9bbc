#pragma once

/// @file
/// What is said where something is refused; empty where it is not.

#include <string>

#include "base/error.hpp"

namespace strata {

template <typename Error>
std::string words_of(const auto& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

inline std::string refusal(const auto& call) { return words_of<Unsupported>(call); }
inline std::string user_error(const auto& call) { return words_of<UserError>(call); }
inline std::string out_of_memory(const auto& call) { return words_of<OutOfMemory>(call); }

}  // namespace strata
