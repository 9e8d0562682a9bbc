#include "planners/operators/block_rules.hpp"

#include <fmt/format.h>

#include <map>
#include <string>
#include <utility>

namespace strata {

int block_in_names(const ModelGraph& graph, int block) {
  if (block < 0) return -1;
  const std::string& name = graph.blocks[static_cast<std::size_t>(block)].name;  // "block[3]"
  return std::stoi(name.substr(name.find('[') + 1));
}

std::vector<OperatorRule> joined_over_blocks(std::vector<RuleOfBlock> said) {
  /// Blocks [first, last] about which the same is said.
  struct Run {
    int first = 0, last = 0;
    OperatorRule rule;
  };
  std::vector<Run> runs;
  std::map<std::string, std::size_t> last_of;  // by pattern within a block: its latest run
  for (auto& [block, rule] : said) {
    const auto found = block < 0 ? last_of.end() : last_of.find(rule.match);
    if (found != last_of.end() && runs[found->second].last == block - 1 && runs[found->second].rule == rule) {
      runs[found->second].last = block;
      continue;
    }
    if (block >= 0) last_of[rule.match] = runs.size();
    runs.push_back({block, block, std::move(rule)});
  }
  std::vector<OperatorRule> rules;
  for (Run& run : runs) {
    OperatorRule& rule = rules.emplace_back(std::move(run.rule));
    if (run.first < 0) continue;
    rule.match = run.first == run.last ? fmt::format("block[{}].{}", run.first, rule.match)
                                       : fmt::format("block[{}..{}].{}", run.first, run.last, rule.match);
  }
  return rules;
}

}  // namespace strata
