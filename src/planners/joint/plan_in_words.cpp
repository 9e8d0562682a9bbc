#include "planners/joint/plan_in_words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "planners/states/factors.hpp"

namespace strata {
namespace {

/// How products whose partial sums are on several ranks bring them together: each way once.
std::string sums_in_words(const Plan& plan) {
  std::vector<std::string_view> words;
  for (const OperatorRule& rule : plan.operators) {
    if (!rule.layout || rule.layout->p2.total() == 1) continue;
    const MatmulAlgorithm algorithm = rule.algorithm.value_or(MatmulAlgorithm::local);
    const std::string_view word =
        algorithm != MatmulAlgorithm::local ? to_string(algorithm) : to_string(rule.sum.value_or(PartialSums::scatter));
    if (std::ranges::find(words, word) == words.end()) words.push_back(word);
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

/// Tensor degrees, smallest first: "4", "2 to 8".
std::string tensor_in_words(const Plan& plan) {
  int least = most_tensor_ranks(plan), most = least;
  for (const OperatorRule& rule : plan.operators) {
    if (rule.layout) least = std::min(least, rule.layout->p1.total() * rule.layout->p2.total());
  }
  return least == most ? fmt::format("{}", most) : fmt::format("{} to {}", least, most);
}

std::string states_in_words(const std::vector<OperatorDecision>& decisions, const ModelGraph& graph) {
  std::map<std::string, int> counts;
  int all = 0;
  for (std::size_t o = 0; o < decisions.size(); ++o) {
    if (graph.operators[o].parameters.empty()) continue;
    ++all;
    if (decisions[o].state != StateFactors{}) ++counts[to_string(decisions[o].state)];
  }
  std::string text;
  for (const auto& [state, count] : counts) {
    text += count == all ? fmt::format("; {}", state) : fmt::format("; {} in {} of {} operators", state, count, all);
  }
  const auto sliced = std::ranges::count_if(decisions, [](const OperatorDecision& d) { return d.slices > 0; });
  return sliced == 0 ? text : text + fmt::format("; {} operators in slices", sliced);
}

/// What the first operator of @p block that runs again does: others of it may not run again.
Recompute recompute_of(const Block& block, const std::vector<OperatorDecision>& decisions) {
  for (int o = block.first_operator; o < block.first_operator + block.num_operators; ++o) {
    const Recompute kind = decisions[static_cast<std::size_t>(o)].recompute;
    if (kind != Recompute::none) return kind;
  }
  return Recompute::none;
}

std::string recomputed_in_words(const std::vector<OperatorDecision>& decisions, const ModelGraph& graph) {
  std::map<Recompute, int> blocks;
  for (const Block& block : graph.blocks) ++blocks[recompute_of(block, decisions)];
  std::string text;
  for (const auto& [kind, count] : blocks) {
    if (kind == Recompute::none) continue;
    text += count == std::ssize(graph.blocks)
                ? fmt::format("; recompute {}", to_string(kind))
                : fmt::format("; recompute {} in {} of {} blocks", to_string(kind), count, graph.blocks.size());
  }
  return text;
}

}  // namespace

std::string degrees_of_plan_in_words(const Plan& plan) {
  const int places = axis_size(plan.mesh, "stage"), tensor = most_tensor_ranks(plan);
  std::string text;
  if (tensor == 1) {
    text = fmt::format("data {}", plan.mesh.num_ranks() / places);
  } else {
    text = fmt::format("{} ranks × tensor {}", plan.mesh.num_ranks() / places, tensor_in_words(plan));
    if (const std::string sums = sums_in_words(plan); !sums.empty()) text += fmt::format(" ({})", sums);
  }
  text += fmt::format(" × stage {}", plan.stages.count);
  if (plan.stages.count > places) text += fmt::format(" ({} a rank)", plan.stages.count / places);
  return text + fmt::format(", {} micro-batches", plan.schedule.micro_batches);
}

std::string plan_in_words(const Plan& plan, const ModelGraph& graph) {
  const std::vector<OperatorDecision> decisions = resolve(plan, graph);
  std::string text = degrees_of_plan_in_words(plan);
  if (plan.stages.count > 1) text += fmt::format(", {}", to_string(plan.schedule.kind));
  text += states_in_words(decisions, graph) + recomputed_in_words(decisions, graph);
  if (plan.schedule.sub_batches > 1) {
    text +=
        fmt::format("; {} sub-batches{}", plan.schedule.sub_batches, plan.schedule.cross_pass ? " across passes" : "");
  }
  if (plan.mesh.placement != "block") text += fmt::format("; {}", plan.mesh.placement);
  return text;
}

}  // namespace strata
