#pragma once

/// @file
/// A file that the user names, as text.

#include <string>

namespace strata {

/// @throws UserError if the file cannot be read.
std::string read_file(const std::string& path);

}  // namespace strata
