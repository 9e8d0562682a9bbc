#pragma once

/// @file
/// Shell completion: a script a shell, generated from the command line's own tree, so that no option can be missing.

#include <map>
#include <string>
#include <vector>

#include "cli/command_tree.hpp"

namespace strata::cli {

/// A key of --set, and what its value may be.
struct CompletedSetting {
  std::string key;
  std::vector<std::string> words;  ///< empty: nothing is proposed
  std::string value;               ///< or a type, as that of an option
};

struct CompletionNames {
  std::map<std::string, std::vector<std::string>> words;  ///< type → what it may be, where the binary knows
  /// type → of which `strata list` it is a name: what depends on the folder. A path ending in .toml is accepted too.
  std::map<std::string, std::string> listed;
  std::vector<CompletedSetting> settings;
};

/// Of strategies, models, classes of endings and all settings.
CompletionNames completion_names();

/// Types have their meaning by their name: "FILE" a file, "FILE.toml" one of that kind, "FOLDER", "KEY=VALUE" a
/// setting, the others from @p names; nothing is proposed for the rest. @return the script.
std::string bash_completion(const Command& strata, const CompletionNames& names);
std::string zsh_completion(const Command& strata, const CompletionNames& names);

}  // namespace strata::cli
