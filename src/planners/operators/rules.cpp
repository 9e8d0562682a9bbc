#include "planners/operators/rules.hpp"

#include <fmt/format.h>

#include <map>
#include <string>
#include <utility>

namespace strata {
namespace {

StateFactors factors(Hold hold, const Factor& all) {
  switch (hold) {
    case Hold::dp: return {};
    case Hold::sdp: return {.g = all, .os = all};
    case Hold::zdp: return {.p = all, .g = all, .os = all};
  }
  return {};
}

/// What is said of one unit, without its block.
std::vector<OperatorRule> rules_of_unit(const OperatorChoices& operators, const ModelGraph& graph, std::size_t unit,
                                        const UnitChoice& choice, const Factor& all) {
  const OperatorUnit& u = operators.units()[unit];
  std::vector<OperatorRule> rules;
  if (choice.hold != Hold::dp) {
    for (const std::string& pattern : u.patterns)
      rules.push_back({.match = pattern, .state = factors(choice.hold, all)});
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
  /// Blocks [first, last] about which the same is said.
  struct Run {
    int first = 0, last = 0;
    OperatorRule rule;
  };
  std::vector<Run> runs;
  std::map<std::string, std::size_t> last_of;  // by pattern within a block: its latest run
  for (std::size_t u = 0; u < choices.size(); ++u) {
    const int block = operators.units()[u].block;
    for (OperatorRule& rule : rules_of_unit(operators, graph, u, operators.meaning(u, choices[u]), all_ranks)) {
      const auto found = block < 0 ? last_of.end() : last_of.find(rule.match);
      if (found != last_of.end() && runs[found->second].last == block - 1 && runs[found->second].rule == rule) {
        runs[found->second].last = block;
        continue;
      }
      if (block >= 0) last_of[rule.match] = runs.size();
      runs.push_back({block, block, std::move(rule)});
    }
  }
  std::vector<OperatorRule> rules = {{.match = "*", .state = StateFactors{}}};
  for (Run& run : runs) {
    OperatorRule& rule = rules.emplace_back(std::move(run.rule));
    if (run.first < 0) continue;
    rule.match = run.first == run.last ? fmt::format("block[{}].{}", run.first, rule.match)
                                       : fmt::format("block[{}..{}].{}", run.first, run.last, rule.match);
  }
  return rules;
}

}  // namespace strata
