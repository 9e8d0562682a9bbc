#pragma once

/// @file
/// What terminals take for colours.

#include <string_view>

namespace strata::harness {

inline constexpr std::string_view plain, green = "\033[32m", red = "\033[31m", end_of_colour = "\033[0m";

}  // namespace strata::harness
