#include "cli/command_tree.hpp"

#include <CLI/CLI.hpp>

namespace strata::cli {
namespace {

/// "FORMAT:{text,goal}" → type and words. Other checks ("INT:POSITIVE") are no part of the type.
void read_type(const CLI::Option& option, std::string& value, std::vector<std::string>& words) {
  const std::string type = option.get_type_name();
  const std::size_t check = type.find(':');
  value = type.substr(0, check);
  const std::size_t open = type.find('{');
  if (open == std::string::npos) return;
  words = CLI::detail::split(type.substr(open + 1, type.find('}') - open - 1), ',');
}

}  // namespace

Command command_tree(const CLI::App& app) {
  Command command{.name = app.get_name(), .help = app.get_description(), .is_analysis = app.get_prefix_command()};
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    if (option->get_positional()) {
      CommandPositional positional{.name = option->get_name(true)};
      read_type(*option, positional.value, positional.words);
      command.positionals.push_back(std::move(positional));
      continue;
    }
    CommandOption read{.help = option->get_description(), .repeats = option->get_expected_max() > 1};
    for (const std::string& name : option->get_snames()) read.names.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) read.names.push_back("--" + name);
    if (option->get_type_size() > 0) read_type(*option, read.value, read.words);
    command.options.push_back(std::move(read));
  }
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App* v) { return !v->get_group().empty(); })) {
    command.commands.push_back(command_tree(*verb));
  }
  return command;
}

}  // namespace strata::cli
