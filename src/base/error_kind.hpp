#pragma once

/// @file
/// The types of base/error.hpp as an enumeration, for where an exception cannot go itself: to another rank, or into a
/// record of how a run ended.

#include <cstdint>
#include <exception>
#include <string>

namespace strata {

enum class ErrorKind : std::uint8_t {
  user_error,
  launch_mismatch,
  unsupported,
  out_of_memory,
  communication_error,
  internal_error,
};
inline constexpr int num_error_kinds = static_cast<int>(ErrorKind::internal_error) + 1;

/// The most special type of ours that @p error has. Whatever is none of ours was not thrown on purpose, so it is an
/// internal error.
ErrorKind kind_of(const std::exception& error);

/// Throws the type that @p kind names.
[[noreturn]] void throw_error(ErrorKind kind, const std::string& message);

}  // namespace strata
