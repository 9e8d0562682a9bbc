#include "planners/states/state_share.hpp"

#include <numeric>

#include "partition/shards.hpp"

namespace strata {

std::string_view to_string(StateShare share) {
  switch (share) {
    case StateShare::none: return "states replicated";
    case StateShare::optimizer: return "optimizer states";
    case StateShare::gradients: return "gradients and optimizer states";
    case StateShare::parameters: return "all states";
  }
  return "?";
}

StateFactors factors_of(StateShare share, const Factor& ranks) {
  const Factor one;
  return {.p = share == StateShare::parameters ? ranks : one,
          .g = share >= StateShare::gradients ? ranks : one,
          .os = share >= StateShare::optimizer ? ranks : one};
}

StateShare share_of(const StateFactors& state) {
  if (state.p.total() > 1) return StateShare::parameters;
  if (state.g.total() > 1) return StateShare::gradients;
  return state.os.total() > 1 ? StateShare::optimizer : StateShare::none;
}

StateFactors carried_over(const StateFactors& state, const Factor& from, const Factor& to) {
  const auto carried = [&](const Factor& factor) -> Factor {
    if (factor.total() == 1) return {};
    if (factor == from || (to.in_node == 1 && from.in_node > 1)) return to;
    if (factor.nodes > 1) return {to.in_node, std::gcd(factor.nodes, to.nodes)};
    return {factor.in_node == from.in_node ? to.in_node : std::gcd(factor.in_node, to.in_node), 1};
  };
  return {.p = carried(state.p), .g = carried(state.g), .os = carried(state.os)};
}

std::vector<Factor> copies_of_operators(const Mesh& mesh, std::span<const OperatorDecision> decisions) {
  const Factor all = data_grid(mesh);
  std::vector<Factor> copies;
  for (const OperatorDecision& d : decisions)
    copies.push_back(d.layout ? copies_of_weight(*d.layout, d.algorithm) : all);
  return copies;
}

}  // namespace strata
