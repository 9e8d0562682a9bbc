#pragma once

/// @file
/// The one table of options: a row is all that adding an option takes besides its field in Experiment.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/toml_value.hpp"
#include "config/experiment.hpp"

namespace strata {

/// A field of an Experiment. Its alternative is the option's type; std::optional: unset until given.
using OptionField = std::variant<bool*, std::int64_t*, double*, std::string*, std::optional<bool>*,
                                 std::optional<std::int64_t>*, std::optional<double>*, std::vector<std::string>*,
                                 std::vector<std::int64_t>*, BatchSize*, std::vector<double>*>;

struct Option {
  std::string_view key;  ///< dotted, as in `--set` and under [sweep]
  OptionField (*field)(Experiment&);
  std::string_view accepted;  ///< see accepted.hpp; of a list: of each element
  std::string_view unit;
  std::string_view help;
  bool required = false;
  bool identifies = true;  ///< part of a point's id
};

/// In the order of the reference: by section.
std::span<const Option> all_options();
/// @return null if there is no such option.
const Option* find_option(std::string_view key);

/// "integer", "list of strings", …
std::string_view type_name(const Option& option);
/// What the option holds, in TOML's types; nothing where it is unset. `strategy.<option>` and `backend` are keys too.
std::optional<TomlValue> value_of(const Experiment& experiment, std::string_view key);
/// True for the key of an option and for any `strategy.<word>`.
bool is_key(std::string_view key);

/// Set @p key from a TOML value and remember where it came from.
/// @param origin "file:line" or "--set", for messages. @throws UserError: unknown key, wrong type, not accepted.
void assign(Experiment& experiment, std::string_view key, const TomlValue& value, const std::string& origin);
/// @throws UserError: unknown key, with near names and what the section accepts.
[[noreturn]] void fail_unknown_key(std::string_view key, const std::string& origin);

}  // namespace strata
