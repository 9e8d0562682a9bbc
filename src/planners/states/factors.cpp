#include "planners/states/factors.hpp"

#include <fmt/format.h>

#include "base/error.hpp"
#include "partition/shards.hpp"

namespace strata {

std::vector<Factor> legal_factors(const Factor& grid) {
  std::vector<Factor> factors;
  for (int in_node = 1; in_node <= grid.in_node; ++in_node) {
    if (grid.in_node % in_node == 0) factors.push_back({in_node, 1});
  }
  for (int nodes = 2; nodes <= grid.nodes; ++nodes) {
    if (grid.nodes % nodes == 0) factors.push_back({grid.in_node, nodes});
  }
  return factors;
}

std::vector<StateFactors> legal_states(const Factor& grid) {
  const std::vector<Factor> factors = legal_factors(grid);
  std::vector<StateFactors> states;
  for (const Factor& p : factors) {
    for (const Factor& os : factors) {
      if (!divides(p, os)) continue;
      states.push_back({.p = p, .g = p, .os = os});
      if (p != os) states.push_back({.p = p, .g = os, .os = os});
    }
  }
  return states;
}

std::string broken_rule(const StateFactors& state, const Factor& grid) {
  struct Named {
    const char* name;
    Factor factor;
  };
  const Named p{"p", state.p}, g{"g", state.g}, os{"os", state.os};
  for (const Named& each : {p, g, os}) {
    if (!divides(each.factor, grid)) {
      return fmt::format("{} = {} does not divide the grid of {} ranks a node × {} nodes", each.name,
                         to_string(each.factor), grid.in_node, grid.nodes);
    }
    if (each.factor.nodes > 1 && each.factor.in_node != grid.in_node) {
      return fmt::format("{} = {} takes {} nodes but {} of the {} ranks in each", each.name, to_string(each.factor),
                         each.factor.nodes, each.factor.in_node, grid.in_node);
    }
  }
  for (const auto& [inner, outer] : {std::pair{p, g}, std::pair{g, os}}) {
    if (!divides(inner.factor, outer.factor)) {
      return fmt::format("{} = {} does not divide {} = {}", inner.name, to_string(inner.factor), outer.name,
                         to_string(outer.factor));
    }
  }
  if (state.g != state.p && state.g != state.os) {
    return fmt::format("g = {} is neither p = {} nor os = {}", to_string(state.g), to_string(state.p),
                       to_string(state.os));
  }
  return "";
}

Factor quotient(const Factor& outer, const Factor& inner) {
  return {outer.in_node / inner.in_node, outer.nodes / inner.nodes};
}

std::vector<Factor> divisors(const Factor& grid) {
  std::vector<Factor> all;
  for (int nodes = 1; nodes <= grid.nodes; ++nodes) {
    for (int in_node = 1; in_node <= grid.in_node; ++in_node) {
      if (grid.nodes % nodes == 0 && grid.in_node % in_node == 0) all.push_back({in_node, nodes});
    }
  }
  return all;
}

Factor product(const Factor& a, const Factor& b) { return {a.in_node * b.in_node, a.nodes * b.nodes}; }

std::optional<Factor> factor_option(std::string_view name, const std::string& value, std::string_view word) {
  if (!word.empty() && value == word) return std::nullopt;
  try {
    return parse_factor(value);
  } catch (const UserError&) {
    throw UserError(fmt::format("strategy.{} = \"{}\": accepted: {}ranks in a node x nodes as in \"4x2\"", name, value,
                                word.empty() ? "" : fmt::format("{}, or ", word)));
  }
}

std::string to_string(const StateFactors& state) {
  return fmt::format("p {}, g {}, os {}", to_string(state.p), to_string(state.g), to_string(state.os));
}

}  // namespace strata
