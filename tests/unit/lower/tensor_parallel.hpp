#pragma once

/// @file
/// A transformer of a few layers on eight ranks, each layer's weights cut over a number of them, with whole sums.

#include <fmt/format.h>

#include <map>
#include <vector>

#include "unit/lower/planned.hpp"

namespace strata {

inline constexpr int num_layers = 3;

inline ModelGraph gpt() {
  return build_model({.name = "gpt",
                      .layers = num_layers,
                      .hidden = 32,
                      .heads = 8,
                      .ffn_hidden = 64,
                      .vocabulary = 64,
                      .sequence_length = 4});
}

/// On one node of eight ranks, each layer's weights cut over so many of them.
inline Plan plan_of(const std::vector<int>& tensor_ranks, Recompute recompute = Recompute::none) {
  Plan plan;
  plan.strategy = "whole sums";
  plan.mesh = {.nodes = 1, .ranks_per_node = 8, .axes = {}};
  plan.global_batch = 16;
  plan.recompute = recompute;
  const auto columns = [](int t) { return Layout{.p0 = {8 / t, 1}, .p1 = {t, 1}, .p2 = {}}; };
  const auto rows = [](int t) { return Layout{.p0 = {8 / t, 1}, .p1 = {}, .p2 = {t, 1}}; };
  plan.operators = {{.match = "*", .sum = PartialSums::all_reduce},
                    {.match = "embedding", .layout = rows(tensor_ranks.front())},
                    {.match = "head", .layout = columns(tensor_ranks.back())}};
  for (int layer = 0; layer < num_layers; ++layer) {
    const int t = tensor_ranks[static_cast<std::size_t>(layer)];
    const auto rule = [&](const char* name, const Layout& layout) {
      plan.operators.push_back({.match = fmt::format("block[{}].{}", layer, name), .layout = layout});
    };
    rule("attn.qkv", columns(t));
    rule("attn.proj", rows(t));
    rule("mlp.fc1", columns(t));
    rule("mlp.fc2", rows(t));
  }
  return plan;
}

using Counts = std::map<Collective, int>;

/// Of rank 0, in all layers: how often each collective runs in @p phase.
inline Counts collectives(const Plan& plan, Phase phase) {
  Counts found;
  for (const Instruction& in : lower(plan, gpt(), 0, no_workspace).body) {
    if (in.is_collective() && in.phase == phase && in.name.starts_with("block[")) {
      ++found[in.collective];
    }
  }
  return found;
}

}  // namespace strata
