/// @file
/// `strata completion`: the script with which a shell completes this command line.

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "base/console.hpp"
#include "base/exit_code.hpp"
#include "cli/command_tree.hpp"
#include "cli/completion.hpp"
#include "cli/verb.hpp"
#include "cli/verb_options.hpp"

namespace strata::cli {
namespace {

void add_completion(const CommandLine& line) {
  const auto shell = std::make_shared<std::string>();
  CLI::App* completion =
      add_verb(line.app, "completion", "a script with which a shell completes verbs, options and names",
               "source <(strata completion bash)");
  completion->add_option("shell", *shell, "whose")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh"}))
      ->type_name("SHELL");
  completion->callback([line, shell] {
    const Command command = command_tree(line.app);
    const CompletionNames names = completion_names();
    say("{}", *shell == "bash" ? bash_completion(command, names) : zsh_completion(command, names));
    line.exit_code = exit_ok;
  });
}

}  // namespace

Verb completion_verb() { return {.place = 2000, .add = add_completion}; }

}  // namespace strata::cli
