#pragma once

/// @file
/// Numbers inside of the words of a plan.

#include <charconv>
#include <cstddef>
#include <optional>
#include <string_view>
#include <system_error>

namespace strata {

/// A number at @p text[at], at least one digit; moves @p at behind it.
inline std::optional<int> read_number(std::string_view text, std::size_t& at) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), value);
  if (error != std::errc{} || text[at] == '-') {
    return std::nullopt;
  }
  at = static_cast<std::size_t>(end - text.data());
  return value;
}

}  // namespace strata
