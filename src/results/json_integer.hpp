#pragma once

/// @file
/// Whole numbers of JSON files, which the library converts from whatever number stands there. For the .cpp files that
/// read JSON.

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.hpp"

namespace strata::results {

/// What @p json holds, which must be a whole number that an @p Integer holds. @throws UserError naming @p what.
template <class Integer, class Json>
Integer json_integer(const Json& json, const std::string& what) {
  const bool is_whole = json.is_number_integer() &&
                        !(json.is_number_unsigned() &&
                          json.template get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()});
  const std::int64_t value = is_whole ? json.template get<std::int64_t>() : 0;
  if (!is_whole || value < std::numeric_limits<Integer>::min() || value > std::numeric_limits<Integer>::max()) {
    throw UserError(what + ": accepted: an integer of " + std::to_string(8 * sizeof(Integer)) + " bits");
  }
  return static_cast<Integer>(value);
}

}  // namespace strata::results
