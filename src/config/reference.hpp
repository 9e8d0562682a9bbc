#pragma once

/// @file
/// What an experiment file may hold, as text generated from the table of options: nobody writes it twice.

#include <string>
#include <string_view>

namespace strata {

/// The reference page, markdown: a table a section, then sweeps and overrides.
std::string reference_markdown();

/// For a terminal: one line an option. @param section "model", "train", … or "" for all. @throws UserError listing the
/// sections.
std::string help_text(std::string_view section = "");

}  // namespace strata
