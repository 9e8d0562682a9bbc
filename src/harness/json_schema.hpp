#pragma once

/// @file
/// The first lines of the harness's JSON files, which say what they are.

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "results/json_integer.hpp"

namespace strata::harness {

/// @throws UserError unless @p json says that it is @p version of @p name; nlohmann::json::exception where it says
/// nothing.
inline void check_schema(const nlohmann::ordered_json& json, std::string_view name, int version) {
  const std::string found_name = json.at("schema").get<std::string>();
  const int found_version = results::json_integer<int>(json.at("version"), "version");
  if (found_name == name && found_version == version) return;
  throw UserError(fmt::format("{} {} where {} {} is read", found_name, found_version, name, version));
}

}  // namespace strata::harness
