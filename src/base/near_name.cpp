/// @file
/// Edit distance over three rows of its table; names are short, so nothing cleverer is needed.

#include "base/near_name.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <utility>

namespace strata {

namespace {

bool same_letter(char a, char b) {
  return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
}

}  // namespace

int edit_distance(std::string_view a, std::string_view b) {
  // Optimal string alignment: rows of the table for i - 2, i - 1 and i letters of a.
  std::vector<int> before(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) {
    last[j] = static_cast<int>(j);
  }
  for (std::size_t i = 1; i <= a.size(); ++i) {
    now[0] = static_cast<int>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (same_letter(a[i - 1], b[j - 1]) ? 0 : 1)});
      if (i > 1 && j > 1 && same_letter(a[i - 1], b[j - 2]) && same_letter(a[i - 2], b[j - 1])) {
        now[j] = std::min(now[j], before[j - 2] + 1);
      }
    }
    std::swap(before, last);
    std::swap(last, now);
  }
  return last[b.size()];
}

std::vector<std::string> nearest_names(std::string_view name, std::span<const std::string> known, int count) {
  std::vector<std::pair<int, std::string>> ranked;
  for (const std::string& candidate : known) {
    ranked.emplace_back(edit_distance(name, candidate), candidate);
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> names;
  for (std::size_t i = 0; i < ranked.size() && static_cast<int>(i) < count; ++i) {
    names.push_back(ranked[i].second);
  }
  return names;
}

std::string did_you_mean(std::string_view name, std::span<const std::string> known) {
  // The table of distances is as long as the name, and nobody misspells a name of a page.
  constexpr std::size_t longest = 200;
  if (name.size() > longest) return "";
  const std::vector<std::string> nearest = nearest_names(name, known, 1);
  const int allowed = std::max(1, static_cast<int>(name.size()) / 3);
  if (nearest.empty() || edit_distance(name, nearest[0]) > allowed) {
    return "";
  }
  return fmt::format("; did you mean \"{}\"?", nearest[0]);
}

}  // namespace strata
