#pragma once

/// @file
/// Files of the harness, written whole or not at all.

#include <filesystem>
#include <string>

namespace strata::harness {

/// By a new file that takes the name of the old one; many small files are not worth an fsync each. @throws UserError.
void write_whole(const std::filesystem::path& file, const std::string& text);

}  // namespace strata::harness
