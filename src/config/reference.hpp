#pragma once

/// @file
/// What an experiment file may hold, as text generated from the table of options: nobody writes it twice.

#include <string>

namespace strata {

/// The reference page, markdown: a table a section, then sweeps and overrides.
std::string reference_markdown();

}  // namespace strata
