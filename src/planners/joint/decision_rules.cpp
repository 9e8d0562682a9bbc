#include "planners/joint/decision_rules.hpp"

#include <algorithm>
#include <utility>

#include "planners/operators/block_rules.hpp"
#include "planners/operators/units.hpp"

namespace strata {
namespace {

/// Of those with parameters; of equally many the first.
StateFactors most_common_state(const ModelGraph& graph, std::span<const OperatorDecision> decisions) {
  std::vector<std::pair<StateFactors, int>> counts;
  for (std::size_t o = 0; o < decisions.size(); ++o) {
    if (graph.operators[o].parameters.empty()) continue;
    const auto same = std::ranges::find(
        counts, decisions[o].state, [](const auto& count) -> const auto& { return count.first; });
    if (same == counts.end()) {
      counts.emplace_back(decisions[o].state, 1);
    } else {
      ++same->second;
    }
  }
  if (counts.empty()) return {};
  return std::ranges::max_element(counts, {}, [](const auto& count) { return count.second; })->first;
}

OperatorRule rule_of(const OperatorDecision& decision, bool has_parameters, const StateFactors& common,
                     Recompute recompute) {
  OperatorRule rule;
  if (decision.recompute != recompute) rule.recompute = decision.recompute;
  if (!has_parameters) return rule;
  if (decision.state != common) rule.state = decision.state;
  rule.layout = decision.layout;
  if (decision.algorithm != MatmulAlgorithm::local) rule.algorithm = decision.algorithm;
  if (decision.directions != 1) rule.directions = decision.directions;
  if (decision.sum != PartialSums::scatter) rule.sum = decision.sum;
  if (decision.slices > 0) {
    rule.slices = decision.slices;
    rule.slice_state = decision.slice_state;
  }
  return rule;
}

}  // namespace

bool is_empty(const OperatorRule& rule) { return rule == OperatorRule{.match = rule.match}; }

std::vector<OperatorRule> rules_of_decisions(const ModelGraph& graph, std::span<const OperatorDecision> decisions,
                                             Recompute recompute) {
  const StateFactors common = most_common_state(graph, decisions);
  std::vector<RuleOfBlock> said;
  for (std::size_t o = 0; o < decisions.size(); ++o) {
    const Operator& op = graph.operators[o];
    OperatorRule rule = rule_of(decisions[o], !op.parameters.empty(), common, recompute);
    if (is_empty(rule)) continue;
    rule.match = name_within_block(graph, op);
    said.push_back({block_in_names(graph, op.block), std::move(rule)});
  }
  std::vector<OperatorRule> rules = joined_over_blocks(std::move(said));
  if (common != StateFactors{}) rules.insert(rules.begin(), {.match = "*", .state = common});
  return rules;
}

}  // namespace strata
