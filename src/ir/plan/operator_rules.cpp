/// @file
/// From rules to decisions: which operators a rule's pattern matches, and what all rules say of each.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/near_name.hpp"
#include "ir/plan/plan.hpp"
#include "ir/plan/read_number.hpp"

namespace strata {
namespace {

struct Range {
  int first = 0;
  int last = 0;
  std::size_t length = 0;  ///< letters of the pattern
};

/// `[2..47]` at @p pattern[at], if that is what stands there.
std::optional<Range> read_range(std::string_view pattern, std::size_t at) {
  const std::size_t begin = at;
  if (at >= pattern.size() || pattern[at] != '[') {
    return std::nullopt;
  }
  ++at;
  const auto first = read_number(pattern, at);
  if (!first || pattern.substr(at, 2) != "..") {
    return std::nullopt;
  }
  at += 2;
  const auto last = read_number(pattern, at);
  if (!last || at >= pattern.size() || pattern[at] != ']') {
    return std::nullopt;
  }
  return Range{*first, *last, at + 1 - begin};
}

/// Letters of @p name that the range takes from @p at on; 0: it does not match there.
std::size_t range_matches(const Range& range, std::string_view name, std::size_t at) {
  const std::size_t begin = at;
  if (at >= name.size() || name[at] != '[') {
    return 0;
  }
  ++at;
  const auto number = read_number(name, at);
  const bool inside = number && at < name.size() && name[at] == ']' && *number >= range.first && *number <= range.last;
  return inside ? at + 1 - begin : 0;
}

/// What every name ends with that @p pattern matches: most names end otherwise, which is seen at once.
std::string_view literal_end(std::string_view pattern) {
  const auto after =
      std::ranges::find_if(pattern.rbegin(), pattern.rend(), [](char c) { return c == '*' || c == ']'; });
  return pattern.substr(static_cast<std::size_t>(pattern.rend() - after));
}

}  // namespace

bool matches(std::string_view pattern, std::string_view name) {
  // Every part but `*` takes a length that follows from where it stands, so going back to the last `*` is enough.
  constexpr std::size_t never = std::string_view::npos;
  std::size_t p = 0, n = 0, star = never, retry = 0;
  while (true) {
    std::size_t pattern_step = 0, name_step = 0;
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      retry = n;
      continue;
    }
    if (const auto range = read_range(pattern, p)) {
      pattern_step = range->length;
      name_step = range_matches(*range, name, n);
    } else if (p < pattern.size() && n < name.size() && pattern[p] == name[n]) {
      pattern_step = name_step = 1;
    }
    if (name_step > 0) {
      p += pattern_step;
      n += name_step;
    } else if (p == pattern.size() && n == name.size()) {
      return true;
    } else if (star != never && retry < name.size()) {
      p = star + 1;
      n = ++retry;
    } else {
      return false;
    }
  }
}

Plan with_rules_of(Plan plan, const ModelGraph& part) {
  std::erase_if(plan.operators, [&](const OperatorRule& rule) {
    const std::string_view end = literal_end(rule.match);
    return std::ranges::none_of(
        part.operators, [&](const Operator& op) { return op.name.ends_with(end) && matches(rule.match, op.name); });
  });
  return plan;
}

std::vector<OperatorDecision> resolve(const Plan& plan, const ModelGraph& graph) {
  OperatorDecision start;
  start.recompute = plan.recompute;
  std::vector<OperatorDecision> decisions(graph.operators.size(), start);
  for (std::size_t r = 0; r < plan.operators.size(); ++r) {
    const OperatorRule& rule = plan.operators[r];
    const std::string_view end = literal_end(rule.match);
    bool any = false;
    for (std::size_t i = 0; i < decisions.size(); ++i) {
      const std::string_view name = graph.operators[i].name;
      if (!name.ends_with(end) || !matches(rule.match, name)) {
        continue;
      }
      any = true;
      OperatorDecision& decision = decisions[i];
      decision.state = rule.state.value_or(decision.state);
      decision.layout = rule.layout ? rule.layout : decision.layout;
      decision.algorithm = rule.algorithm.value_or(decision.algorithm);
      decision.directions = rule.directions.value_or(decision.directions);
      decision.sum = rule.sum.value_or(decision.sum);
      decision.recompute = rule.recompute.value_or(decision.recompute);
      if (rule.slices) {
        decision.slices = *rule.slices;
        decision.slice_state.clear();  // the modes belong to the slices they were written with
      }
      if (!rule.slice_state.empty()) {
        decision.slice_state = rule.slice_state;
      }
    }
    if (!any) {
      std::vector<std::string> names;
      for (const Operator& op : graph.operators) {
        names.push_back(op.name);
      }
      throw UserError(fmt::format("plan: operators[{}].match: \"{}\" matches no operator of {}; nearest: {}", r,
                                  rule.match, graph.name, fmt::join(nearest_names(rule.match, names, 3), ", ")));
    }
  }
  return decisions;
}

}  // namespace strata
