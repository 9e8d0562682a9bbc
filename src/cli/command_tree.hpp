#pragma once

/// @file
/// The command line as plain data, read off CLI11's own tree: what shell completion is generated from. Options and
/// verbs that --help does not show are not in it.

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace strata::cli {

struct CommandOption {
  std::vector<std::string> names;  ///< "-h", "--help"
  std::string help;
  std::string value;               ///< type as --help prints it: "FILE.toml", "SITE"; empty: a flag
  std::vector<std::string> words;  ///< accepted ones, where nothing else is
  bool repeats = false;
};

struct CommandPositional {
  std::string name;
  std::string value;
  std::vector<std::string> words;
};

struct Command {
  std::string name;
  std::string help;
  std::vector<CommandOption> options;
  std::vector<CommandPositional> positionals;
  std::vector<Command> commands;
  bool is_analysis = false;  ///< the analysis package knows its options
};

Command command_tree(const CLI::App& app);

}  // namespace strata::cli
