#include "harness/reasons.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string_view>
#include <utility>

#include "base/one_line.hpp"
#include "harness/colours.hpp"

namespace strata::harness {
namespace {

/// Every number as one sign.
std::string without_numbers(std::string_view message) {
  std::string text;
  for (const char c : message) {
    if (c < '0' || c > '9') {
      text += c;
    } else if (!text.ends_with('#')) {
      text += '#';
    }
  }
  return text;
}

}  // namespace

std::string by_reason(const std::vector<Complaint>& complaints, bool colour, std::string_view all_are) {
  constexpr std::size_t lines_of_a_screen = 20;
  struct Reason {
    const Complaint* first;
    int count = 0;
  };
  std::vector<Reason> found;
  std::map<std::pair<std::string, std::string>, std::size_t> place;
  for (const Complaint& complaint : complaints) {
    const auto [at, is_new] = place.try_emplace({complaint.state, without_numbers(complaint.message)}, found.size());
    if (is_new) found.push_back({&complaint});
    ++found[at->second].count;
  }
  std::ranges::stable_sort(found, std::ranges::greater(), &Reason::count);
  std::size_t width = 0;
  for (const Reason& reason : found) width = std::max(width, reason.first->state.size());
  std::string text;
  for (std::size_t r = 0; r < std::min(found.size(), lines_of_a_screen); ++r) {
    const Complaint& first = *found[r].first;
    const bool red_state = colour && first.is_bad;
    text += fmt::format("{}{:<{}}{}  {:>5}  {}, {} {}{}\n", red_state ? red : plain, first.state, width,
                        red_state ? end_of_colour : plain, found[r].count, printable(one_line(first.message)),
                        found[r].count == 1 ? "point" : "first point", first.point_id,
                        first.block < 0 ? "" : fmt::format(" block {}", first.block));
  }
  if (found.size() > lines_of_a_screen) {
    text += fmt::format("and {} more reasons{}{}\n", found.size() - lines_of_a_screen, all_are.empty() ? "" : "; ",
                        all_are);
  }
  return text;
}

}  // namespace strata::harness
