/// @file
/// The script for bash: three tables from the tree, and the functions that read them. It needs no package of bash's.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/completion.hpp"

namespace strata::cli {
namespace {

constexpr std::string_view functions = R"sh(
# The options of a verb that the analysis package knows, from its own --help; asked once.
_strata_ask() {
  local asked=_strata_asked_$1 row
  [[ -v $asked ]] || printf -v "$asked" %s "$(COLUMNS=200 "${line[0]/#\~/$HOME}" "$1" --help 2>/dev/null |
    sed -nE 's/^ +(-[a-z], )?(--[a-z-]+)( ([A-Z]+))?( .*)?$/\2=\4/p')"
  options=
  while IFS= read -r row; do options+=" ${row%%=*}"; done <<<"${!asked}"
}

_strata_reply() { # adds the lines of standard input to the answer
  mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY
}

# Adds those of the words $1 that begin with $cur, each with $2 behind it. They are compared as they are: names of files
# come among them, and compgen -W would run what stands in $(...). Nor is a name offered that the shell would not take as
# it is.
_strata_words() {
  local -a words=()
  local word
  read -rd '' -a words <<<"$1"
  for word in "${words[@]}"; do
    if [[ $word == "$cur"* && $word =~ ^[A-Za-z0-9@%+=:,./_-]+$ ]]; then COMPREPLY+=("$word${2-}"); fi
  done
}

_strata_files() { # $1: their ending
  compopt -o filenames 2>/dev/null
  _strata_reply < <(compgen -d -- "$cur"; compgen -f -X "!*$1" -- "$cur")
}

# What a value of type $1 that begins with $cur may be.
_strata_values() {
  local words='' listed='' key
  case $1 in
    FILE*) _strata_files "${1#FILE}"; return ;;
    FOLDER) compopt -o filenames 2>/dev/null; _strata_reply < <(compgen -d -- "$cur"); return ;;
    KEY=VALUE)
      if [[ $cur == *=* ]]; then
        key=${cur%%=*} cur=${cur#*=}
        local type=''
        _strata_setting "$key"
        [[ -z $type ]] || _strata_values "$type"
        _strata_words "$words"
        COMPREPLY=("${COMPREPLY[@]/#/$key=}")
      else
        compopt -o nospace 2>/dev/null
        _strata_words "$_strata_keys" =
      fi
      return
      ;;
  esac
  _strata_names "$1"
  if [[ -n $listed ]]; then
    [[ -z $cur ]] || _strata_files .toml
    words+=" $("${line[0]/#\~/$HOME}" list "$listed" 2>/dev/null | cut -d ' ' -f 1)"
  fi
  _strata_words "$words"
}

_strata() {
  # bash cuts words at = and :, strata does not.
  local -a line=()
  local word glue=
  for word in "${COMP_WORDS[@]:0:COMP_CWORD+1}"; do
    if [[ $word == [=:] || -n $glue ]]; then line[-1]+=$word; else line+=("$word"); fi
    if [[ $word == [=:] ]]; then glue=1; else glue=; fi
  done
  local whole=${line[-1]} cur=${line[-1]} prefix='' verb='' type='' given=0 i
  local commands options
  local -a positionals
  _strata_at ''
  for ((i = 1; i < ${#line[@]} - 1; ++i)); do
    word=${line[i]}
    if [[ -n $type ]]; then
      type=
    elif [[ $word == -* ]]; then
      [[ $word == *=* ]] || _strata_type "$verb" "$word"
    elif [[ " $commands " == *" $word "* ]]; then
      verb+=${verb:+ }$word
      _strata_at "$verb"
    else
      ((++given))
    fi
  done
  COMPREPLY=()
  if [[ -z $type && $cur == --*=* ]]; then
    _strata_type "$verb" "${cur%%=*}"
    prefix=${cur%%=*}= cur=${cur#*=}
  elif [[ -z $type && $cur == -* ]]; then
    _strata_words "$options"
    return
  elif [[ -z $type && -n $commands ]]; then
    _strata_words "$commands"
    return
  elif [[ -z $type ]]; then
    type=${positionals[given]-}
  fi
  [[ -n $type ]] || return
  _strata_values "$type"
  COMPREPLY=("${COMPREPLY[@]/#/$prefix}")
  # What stands before the last = is on the line already.
  if [[ $COMP_WORDBREAKS == *=* && $whole == *=* ]]; then COMPREPLY=("${COMPREPLY[@]#"${whole%=*}="}"); fi
}
complete -F _strata strata
)sh";

std::string joined(const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, " ")); }

/// Words in braces are a type of their own: "{bash,zsh}".
std::string type_of(const std::string& value, const std::vector<std::string>& words) {
  return words.empty() ? value : fmt::format("{{{}}}", fmt::join(words, ","));
}

void add_places(const Command& command, const std::string& path, std::string& places, std::string& types) {
  std::vector<std::string> commands;
  std::vector<std::string> options;
  for (const Command& verb : command.commands) commands.push_back(verb.name);
  for (const CommandOption& option : command.options) {
    options.insert(options.end(), option.names.begin(), option.names.end());
    if (option.value.empty()) continue;
    for (const std::string& name : option.names) {
      types += fmt::format("    '{} {}') type='{}' ;;\n", path, name, type_of(option.value, option.words));
    }
  }
  std::string positionals;
  for (const CommandPositional& positional : command.positionals) {
    positionals += fmt::format("{}'{}'", positionals.empty() ? "" : " ", type_of(positional.value, positional.words));
  }
  // Results of one sweep, or of two.
  if (command.is_analysis) positionals = "FOLDER FOLDER";
  places += fmt::format("    '{}') commands='{}' options='{}' positionals=({}) ;;\n", path, joined(commands),
                        joined(options), positionals);
  for (const Command& verb : command.commands) {
    add_places(verb, path.empty() ? verb.name : path + " " + verb.name, places, types);
  }
}

}  // namespace

std::string bash_completion(const Command& strata, const CompletionNames& names) {
  std::string places;
  std::string types;
  add_places(strata, "", places, types);
  std::string analysis;
  for (const Command& verb : strata.commands) {
    if (verb.is_analysis) analysis += fmt::format("{}{}", analysis.empty() ? "" : " | ", verb.name);
  }
  std::string keys;
  std::string settings;
  for (const CompletedSetting& setting : names.settings) {
    keys += (keys.empty() ? "" : " ") + setting.key;
    if (!setting.value.empty()) settings += fmt::format("    {}) type={} ;;\n", setting.key, setting.value);
    if (!setting.words.empty()) settings += fmt::format("    {}) words='{}' ;;\n", setting.key, joined(setting.words));
  }
  std::string named;
  for (const auto& [type, words] : names.words) named += fmt::format("    {}) words='{}' ;;\n", type, joined(words));
  for (const auto& [type, listed] : names.listed) named += fmt::format("    {}) listed={} ;;\n", type, listed);
  return fmt::format(R"sh(# shellcheck shell=bash disable=SC2034
# What strata's command line may hold, for bash; made by `strata completion bash`. In ~/.bashrc:
#   source <(strata completion bash)

# What may stand after the verb $1.
_strata_at() {{
  case $1 in
{}  esac
  case $1 in
    {}) _strata_ask "$1" ;;
  esac
}}

# The type of the value of option $2 of verb $1, as --help prints it; nothing for a flag.
_strata_type() {{
  local asked
  case "$1 $2" in
{}    *)
      asked=_strata_asked_${{1// /_}}
      [[ ${{!asked-}} =~ (^|$'\n')"$2="([A-Z]+) ]] && type=${{BASH_REMATCH[2]}}
      ;;
  esac
}}

# What the value of a setting may be.
_strata_keys='{}'
_strata_setting() {{
  case $1 in
{}  esac
}}

# Names of a type that the binary knows, and what `strata list` knows.
_strata_names() {{
  case $1 in
{}    '{{'*) words=${{1//[{{,\}}]/ }} ;;
  esac
}}
{})sh",
                     places, analysis, types, keys, settings, named, functions);
}

}  // namespace strata::cli
