#pragma once

/// @file
/// Files of the harness, written whole or not at all; of many, one that is damaged all the same is left out by name.

#include <filesystem>
#include <string>

#include "base/error.hpp"

namespace strata::harness {

/// By a new file that takes the name of the old one once it is on disk. @throws UserError.
void write_whole(const std::filesystem::path& file, const std::string& text);

/// On stderr, once for each message: the sweep goes on without the file that it names.
void warn_of_damage(const UserError& error);

}  // namespace strata::harness
