#include "ir/plan/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "base/error.hpp"
#include "ir/plan/plan_words.hpp"
#include "ir/plan/read_number.hpp"

namespace strata {

int most_data_ranks(const Plan& plan, std::span<const OperatorDecision> decisions) {
  if (!has_layouts(plan.mesh)) return axis_size(plan.mesh, "data");
  int most = 1;
  for (const OperatorDecision& d : decisions) {
    if (!d.layout) continue;
    const bool is_summa = d.algorithm == MatmulAlgorithm::summa;
    most = std::max(most, d.layout->p0.total() * (is_summa ? d.layout->p1.total() : 1));
  }
  return most;
}

int most_tensor_ranks(const Plan& plan) {
  int most = 1;
  for (const OperatorRule& rule : plan.operators) {
    if (rule.layout) most = std::max(most, rule.layout->p1.total() * rule.layout->p2.total());
  }
  return most;
}

bool recomputes_blocks(Recompute kind) { return kind == Recompute::block || kind == Recompute::whole_block; }

std::string_view to_string(Recompute value) {
  switch (value) {
    case Recompute::none: return "none";
    case Recompute::block: return "block";
    case Recompute::after_communication: return "after_communication";
    case Recompute::whole_block: return "whole_block";
  }
  return "?";
}

const Factor& copies_of_weight(const Layout& layout, MatmulAlgorithm algorithm) {
  return algorithm == MatmulAlgorithm::summa ? layout.p1 : layout.p0;
}

std::string_view to_string(MatmulAlgorithm value) {
  switch (value) {
    case MatmulAlgorithm::local: return "local";
    case MatmulAlgorithm::summa: return "summa";
    case MatmulAlgorithm::ring: return "ring";
  }
  return "?";
}

std::string_view to_string(PartialSums value) { return value == PartialSums::scatter ? "scatter" : "all_reduce"; }

std::string to_string(const Factor& factor) { return fmt::format("{}x{}", factor.in_node, factor.nodes); }

Recompute parse_recompute(std::string_view text) {
  for (const Recompute value :
       {Recompute::none, Recompute::block, Recompute::after_communication, Recompute::whole_block}) {
    if (to_string(value) == text) {
      return value;
    }
  }
  throw UserError(fmt::format("unknown recomputation \"{}\"; accepted: {}", text, plan_words::recompute));
}

Factor parse_factor(std::string_view text) {
  std::size_t at = 0;
  Factor factor;
  const auto in_node = text.empty() ? std::nullopt : read_number(text, at);
  if (in_node && *in_node >= 1 && at + 1 < text.size() && text[at] == 'x') {
    const auto nodes = read_number(text, ++at);
    if (nodes && *nodes >= 1 && at == text.size()) {
      return {*in_node, *nodes};
    }
  }
  throw UserError(fmt::format("\"{}\" is not a factor; accepted: ranks in a node x nodes, as \"4x2\"", text));
}

int num_moments(const OptimizerPlan& optimizer) {
  if (optimizer.kind != "sgd") return 2;
  return optimizer.momentum == 0.0 ? 0 : 1;
}

}  // namespace strata
