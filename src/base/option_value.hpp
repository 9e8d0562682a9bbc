#pragma once

/// @file
/// The value of one option, as a planner declares it and an experiment file gives it. The alternative is the option's
/// type.

#include <cstdint>
#include <string>
#include <variant>

namespace strata {

using OptionValue = std::variant<bool, std::int64_t, double, std::string>;

}  // namespace strata
