/// @file
/// The script for zsh: a function a verb, in the words of zsh's own _arguments.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/completion.hpp"

namespace strata::cli {
namespace {

constexpr std::string_view head = R"zsh(#compdef strata
# What strata's command line may hold, for zsh; made by `strata completion zsh`. In ~/.zshrc, after compinit:
#   source <(strata completion zsh)

# Names that `strata list` knows, or a file of one's own.
_strata_listed() {
  local -a listed
  listed=(${${(f)"$(${~strata_command} list $1 2>/dev/null)"}%% *})
  compadd -a listed
  _files -g '*.toml'
}

# The options of a verb that the analysis package knows, from its own --help.
_strata_ask() {
  local row action
  local -a rows=()
  for row in ${(f)"$(COLUMNS=200 ${~strata_command} $1 --help 2>/dev/null)"}; do
    [[ $row =~ '^ +(-[a-z], )?(--[a-z-]+)( ([A-Z]+))?( .*)?$' ]] || continue
    if [[ -z $match[4] ]]; then
      rows+=("$match[2]")
    else
      _strata_action $match[4]
      rows+=("*$match[2]=:$match[4]:$action")
    fi
  done
  _arguments $rows '*:results:_files -/'
}
)zsh";

constexpr std::string_view tail = R"zsh(
_strata() {
  local strata_command=$words[1]
  _strata_at
}
# Loaded by compinit from a folder of $fpath, or sourced.
if [[ $funcstack[1] == _strata ]]; then _strata "$@"; else compdef _strata strata; fi
)zsh";

/// Inside single quotes, and inside the brackets of a specification.
std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '\'') {
      result += "'\\''";
      continue;
    }
    if (c == '[' || c == ']' || c == ':' || c == '\\') result += '\\';
    result += c;
  }
  return result;
}

/// What _arguments shall do for a value of a type.
std::string action_of(const std::string& value, const std::vector<std::string>& words, const CompletionNames& names) {
  if (!words.empty()) return fmt::format("({})", fmt::join(words, " "));
  if (value == "FOLDER") return "_files -/";
  if (value == "FILE") return "_files";
  if (value.starts_with("FILE")) return fmt::format("_files -g \"*{}\"", value.substr(4));
  if (value == "KEY=VALUE") return "_strata_setting";
  if (const auto known = names.words.find(value); known != names.words.end()) {
    return fmt::format("({})", fmt::join(known->second, " "));
  }
  if (const auto listed = names.listed.find(value); listed != names.listed.end()) {
    return " _strata_listed " + listed->second;  // the space: called with these words alone
  }
  return " ";  // a message, and nothing to choose from
}

std::string option_row(const CommandOption& option, const CompletionNames& names) {
  std::string spelt = option.names.front();
  std::string excluded;
  if (option.names.size() > 1) {
    excluded = fmt::format("'({})'", fmt::join(option.names, " "));
    spelt = fmt::format("{{{}}}", fmt::join(option.names, ","));
  } else if (option.repeats) {
    excluded = "'*'";
  }
  const std::string value =
      option.value.empty() ? ""
                           : fmt::format(":{}:{}", escaped(option.value), action_of(option.value, option.words, names));
  return fmt::format("{}{}'{}[{}]{}'", excluded, spelt, option.value.empty() ? "" : "=", escaped(option.help), value);
}

/// `_strata_at_program` and those of the verbs below it.
void add_functions(const Command& command, const std::string& function, const CompletionNames& names,
                   std::string& text) {
  if (command.is_analysis) {
    text += fmt::format("\n{}() {{ _strata_ask {} }}\n", function, command.name);
    return;
  }
  std::string rows;
  for (const CommandOption& option : command.options) rows += fmt::format(" \\\n    {}", option_row(option, names));
  int place = 0;
  for (const CommandPositional& positional : command.positionals) {
    rows += fmt::format(" \\\n    '{}:{}:{}'", ++place, escaped(positional.name),
                        action_of(positional.value, positional.words, names));
  }
  if (command.commands.empty()) {
    text += fmt::format("\n{}() {{\n  _arguments{}\n}}\n", function, rows);
    return;
  }
  std::string described;
  std::string cases;
  for (const Command& verb : command.commands) {
    described += fmt::format("    '{}:{}'\n", verb.name, escaped(verb.help));
    cases += fmt::format("    {}) {}_{} ;;\n", verb.name, function, verb.name);
  }
  text += fmt::format(R"zsh(
{0}() {{
  local curcontext=$curcontext state
  local -a verbs line
  verbs=(
{1}  )
  _arguments -C{2} \
    '1:verb:->verb' '*::word:->words'
  case $state in
    verb) _describe verb verbs ;;
    words)
      case $words[1] in
{3}      esac
      ;;
  esac
}}
)zsh",
                      function, described, rows, cases);
  for (const Command& verb : command.commands) add_functions(verb, function + "_" + verb.name, names, text);
}

}  // namespace

std::string zsh_completion(const Command& strata, const CompletionNames& names) {
  std::string text{head};
  text += "\n# What to do for a value of type $1: sets action.\n_strata_action() {\n  case $1 in\n";
  for (const auto& [type, words] : names.words) {
    text += fmt::format("    {}) action='{}' ;;\n", type, action_of(type, {}, names));
  }
  text += "    FOLDER) action='_files -/' ;;\n    *) action=' ' ;;\n  esac\n}\n";
  text += "\n_strata_setting() {\n  if ! compset -P '*='; then\n    compadd -S = --";
  for (const CompletedSetting& setting : names.settings) text += " " + setting.key;
  text += "\n    return\n  fi\n  case ${${IPREFIX%=}##*=} in\n";
  for (const CompletedSetting& setting : names.settings) {
    if (const auto known = names.words.find(setting.value); known != names.words.end()) {
      text += fmt::format("    {}) compadd -- {} ;;\n", setting.key, fmt::join(known->second, " "));
    } else if (!setting.value.empty()) {
      text += fmt::format("    {}){} ;;\n", setting.key, action_of(setting.value, {}, names));
    } else if (!setting.words.empty()) {
      text += fmt::format("    {}) compadd -- {} ;;\n", setting.key, fmt::join(setting.words, " "));
    }
  }
  text += "  esac\n}\n";
  add_functions(strata, "_strata_at", names, text);
  text += tail;
  return text;
}

}  // namespace strata::cli
