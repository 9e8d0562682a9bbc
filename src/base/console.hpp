#pragma once

/// @file
/// What a person reads: standard output and standard error. Neither throws, so that a full disk behind a log ends no
/// run; that output was lost is said once, when the program ends.

#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace strata {

/// Standard streams that the caller has closed are opened so that their use fails. Else the first file that is opened
/// would have their number, and what is meant for the screen would stand in it. Before anything is opened.
void occupy_standard_streams();

void put_output(std::string_view text);
void put_error(std::string_view text);

/// To standard output, as fmt::print.
template <typename... Arguments>
void say(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  put_output(fmt::format(format, std::forward<Arguments>(arguments)...));
}

/// To standard error.
template <typename... Arguments>
void say_error(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  put_error(fmt::format(format, std::forward<Arguments>(arguments)...));
}

/// What was said so far is seen now.
void flush_output();

/// All that was said has left the process. @throws UserError where some of it is lost: "standard output cannot be
/// written: <reason>".
void finish_output();

}  // namespace strata
