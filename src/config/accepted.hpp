#pragma once

/// @file
/// The small language in which an option says what it accepts, for people and for the check alike: words "a | b | c", a
/// condition
/// ">= 0 and < 1", or nothing: anything of the type. Modes declare their own options in the same words.

#include <string>
#include <string_view>

#include "base/option_value.hpp"
#include "base/toml_value.hpp"

namespace strata {

/// @return "" if @p value is accepted, else what is wrong and what is accepted. Text that is neither words nor a
/// condition accepts all.
std::string refusal(const TomlValue& value, std::string_view accepted);
std::string refusal(const OptionValue& value, std::string_view accepted);

TomlValue to_toml(const OptionValue& value);

}  // namespace strata
