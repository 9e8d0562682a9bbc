#include "planners/operators/rules.hpp"

#include <string>
#include <utility>

#include "planners/operators/block_rules.hpp"
#include "planners/states/state_share.hpp"

namespace strata {
namespace {

StateShare share_of(Hold hold) {
  switch (hold) {
    case Hold::dp: return StateShare::none;
    case Hold::sdp: return StateShare::gradients;
    case Hold::zdp: return StateShare::parameters;
  }
  return StateShare::none;
}

/// What is said of one unit, without its block.
std::vector<OperatorRule> rules_of_unit(const OperatorChoices& operators, const ModelGraph& graph, std::size_t unit,
                                        const UnitChoice& choice, const Factor& all) {
  const OperatorUnit& u = operators.units()[unit];
  std::vector<OperatorRule> rules;
  if (choice.hold != Hold::dp) {
    for (const std::string& pattern : u.patterns)
      rules.push_back({.match = pattern, .state = factors_of(share_of(choice.hold), all)});
  }
  if (choice.slices == 0) return rules;
  for (const int o : u.operators) {
    if (!operators.is_sliced(o, choice.slices)) continue;
    OperatorRule rule{.match = name_within_block(graph, graph.operators[static_cast<std::size_t>(o)])};
    rule.slices = choice.slices;
    for (int s = 0; s < choice.slices; ++s) rule.slice_state.emplace_back(s < choice.sharded_slices ? "zdp" : "dp");
    rules.push_back(std::move(rule));
  }
  return rules;
}

}  // namespace

std::vector<OperatorRule> rules_of(const OperatorChoices& operators, const ModelGraph& graph, const Factor& all_ranks,
                                   std::span<const int> choices) {
  std::vector<RuleOfBlock> said;
  for (std::size_t u = 0; u < choices.size(); ++u) {
    for (OperatorRule& rule : rules_of_unit(operators, graph, u, operators.meaning(u, choices[u]), all_ranks)) {
      said.push_back({operators.units()[u].block, std::move(rule)});
    }
  }
  std::vector<OperatorRule> rules = {{.match = "*", .state = StateFactors{}}};
  for (OperatorRule& rule : joined_over_blocks(std::move(said))) rules.push_back(std::move(rule));
  return rules;
}

}  // namespace strata
