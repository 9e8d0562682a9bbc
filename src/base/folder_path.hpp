#pragma once

/// @file
/// A folder as an argument names it, in the one form that all others compare and build on.

#include <algorithm>
#include <filesystem>
#include <string>

#include "base/error.hpp"
#include "base/one_line.hpp"

namespace strata {

/// Absolute, without `.`, `..` and a slash at its end, which completion of shells adds: "results/first/" has the name
/// `first` and the folder `results` above it. Symbolic links stay.
/// @throws UserError for line breaks and other control characters, which no script or table survives.
inline std::filesystem::path folder_path(const std::string& argument) {
  if (std::ranges::any_of(argument, [](unsigned char c) { return c < ' ' || c == 0x7F; })) {
    throw UserError("a folder's name with a line break or another control character: " + one_line(argument));
  }
  const std::filesystem::path path = std::filesystem::absolute(argument).lexically_normal();
  return path.has_filename() ? path : path.parent_path();
}

}  // namespace strata
