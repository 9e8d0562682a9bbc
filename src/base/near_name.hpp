#pragma once

/// @file
/// "Did you mean": the known name nearest to a misspelt one, by edits (insert, delete, replace, swap of neighbours),
/// upper and lower case alike.

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

int edit_distance(std::string_view a, std::string_view b);

/// `; did you mean "x"?`, or "" if no name is near enough to be a slip: at most a third of the letters, at least one.
std::string did_you_mean(std::string_view name, std::span<const std::string> known);

/// The @p count nearest of @p known, nearest first; ties in their given order.
std::vector<std::string> nearest_names(std::string_view name, std::span<const std::string> known, int count);

}  // namespace strata
