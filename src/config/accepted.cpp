/// @file
/// Reads the accepted text of an option and checks a value against it.

#include "config/accepted.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <vector>

#include "base/near_name.hpp"

namespace strata {
namespace {

struct Bound {
  std::string_view comparison;
  double limit = 0.0;
};

/// ">= 0 and < 1" → two bounds; nothing if it is no condition.
std::vector<Bound> parse_bounds(std::string_view accepted) {
  std::vector<Bound> bounds;
  while (!accepted.empty()) {
    const std::size_t joint = accepted.find(" and ");
    const std::string_view part = accepted.substr(0, joint);
    accepted = joint == std::string_view::npos ? std::string_view{} : accepted.substr(joint + 5);
    const std::size_t space = part.find(' ');
    Bound bound{part.substr(0, space), 0.0};
    const std::string_view number = space == std::string_view::npos ? std::string_view{} : part.substr(space + 1);
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), bound.limit);
    const bool known =
        bound.comparison == ">=" || bound.comparison == ">" || bound.comparison == "<=" || bound.comparison == "<";
    if (!known || error != std::errc{} || end != number.data() + number.size()) {
      return {};
    }
    bounds.push_back(bound);
  }
  return bounds;
}

bool holds(const Bound& bound, double value) {
  if (bound.comparison == ">=") {
    return value >= bound.limit;
  }
  if (bound.comparison == ">") {
    return value > bound.limit;
  }
  return bound.comparison == "<=" ? value <= bound.limit : value < bound.limit;
}

}  // namespace

TomlValue to_toml(const OptionValue& value) {
  return std::visit([](const auto& held) { return TomlValue{held, 0}; }, value);
}

std::string refusal(const OptionValue& value, std::string_view accepted) { return refusal(to_toml(value), accepted); }

std::string refusal(const TomlValue& value, std::string_view accepted) {
  if (const auto number = value.number()) {
    const std::vector<Bound> bounds = parse_bounds(accepted);
    if (!std::all_of(bounds.begin(), bounds.end(), [&](const Bound& bound) { return holds(bound, *number); })) {
      return fmt::format("{} is out of range; accepted: {}", toml_text(value), accepted);
    }
    return "";
  }
  const std::string* word = std::get_if<std::string>(&value.data);
  const std::vector<std::string> words = split_words(accepted);
  const bool lists_words = !words.empty() && std::all_of(words.begin(), words.end(), [](const std::string& w) {
    return w.find(' ') == std::string::npos;
  });
  if (word != nullptr && lists_words && std::find(words.begin(), words.end(), *word) == words.end()) {
    return fmt::format("unknown word \"{}\"{}; accepted: {}", *word, did_you_mean(*word, words), accepted);
  }
  return "";
}

}  // namespace strata
