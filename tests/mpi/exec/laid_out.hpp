#pragma once

/// @file
/// What tests of tensor layouts share: plans whose rules say how ranks are used, and networks of sizes that all degrees
/// divide.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "mpi/exec/networks.hpp"
#include "partition/shards.hpp"
#include "partition/tensor_layout.hpp"

namespace strata {

class LaidOut : public testing::Test {
 protected:
  comm::World world;
  comm::Engine engine{world, {.watchdog_seconds = 60}};
  int size() const { return world.size(); }
  /// Two nodes where they come out even.
  Mesh mesh() const {
    const int nodes = size() % 4 == 0 ? 2 : 1;
    return {.nodes = nodes, .ranks_per_node = size() / nodes, .axes = {}};
  }
  Factor grid() const { return whole_grid(mesh()); }

  Plan laid_out(const Training& training, std::vector<OperatorRule> rules) const {
    Plan plan = training.plan;
    plan.strategy = "laid out";
    plan.mesh = mesh();
    plan.operators = std::move(rules);
    return plan;
  }

  Trained alone(const Training& training) { return train(training, "single", 1, world, engine); }
};

/// What a step of @p program sends, by collective.
inline std::array<std::int64_t, num_collectives> predicted_bytes(const Program& program) {
  std::array<std::int64_t, num_collectives> bytes{};
  const BytesByCollective all = bytes_by_collective(program);
  for (int kind = 0; kind < num_collectives; ++kind) {
    bytes[static_cast<std::size_t>(kind)] = all[static_cast<Collective>(kind)];
  }
  return bytes;
}

/// Sizes that all degrees of 8 ranks divide.
inline Training exact_for_layouts(int micro_batches) { return exact(micro_batches, {16, 32, 48, 8}); }

/// Sizes that all degrees of 12 ranks divide, which leaves nothing exact.
inline Training rounded_for_layouts(int micro_batches) {
  Training training{.graph = build_model({.name = "mlp", .widths = {24, 48, 36, 12}}), .plan = sgd(24 * micro_batches)};
  training.plan.schedule.micro_batches = micro_batches;
  training.classes = 12;
  return training;
}

/// A model whose sizes 2, 4, 8 and 12 ranks divide.
inline RealModel transformer(const char* name) {
  return {name,
          {.name = name,
           .layers = 2,
           .hidden = 48,
           .heads = 24,
           .ffn_hidden = 96,
           .vocabulary = 120,
           .sequence_length = 9,
           .dropout = 0.1}};
}

/// One of images: convolutions and the class token data parallel, then as GPT.
inline RealModel vision_transformer() {
  return {"vit",
          {.name = "vit-nano",
           .layers = 2,
           .hidden = 48,
           .heads = 24,
           .ffn_hidden = 96,
           .dropout = 0.1,
           .image_size = 8,
           .num_classes = 24}};
}

/// @p p0 ranks split samples, and of the rest @p p1 the outputs.
inline Layout layout_of(const AtomicAxes& axes, int p0, int p1) {
  const int num_ranks = axes.num_ranks(axes.all());
  const auto first = [&](int degree, AxisSet among) {
    for (AxisSet set = 0; set <= axes.all(); ++set) {
      if ((set & ~among) == 0 && axes.num_ranks(set) == degree) return set;
    }
    throw InternalError(fmt::format("{} is no product of axes of {} ranks", degree, num_ranks));
  };
  const AxisSet samples = first(p0, axes.all()), outputs = first(p1, axes.all() & ~samples);
  return {.p0 = axes.factor(samples), .p1 = axes.factor(outputs), .p2 = axes.factor(axes.all() & ~samples & ~outputs)};
}

/// Every product of a transformer, each with degrees of its own: rules a name pattern.
struct TransformerDegrees {
  int p0;
  int embedding, qkv, proj, fc1, fc2, head;  ///< p1
};

inline std::vector<OperatorRule> rules_of(const AtomicAxes& axes, const TransformerDegrees& d, std::string_view model) {
  const bool is_gpt = model != "llama";
  const char* first = is_gpt ? "*mlp.fc1" : "*mlp.gate_up";
  const char* second = is_gpt ? "*mlp.fc2" : "*mlp.down";
  const auto rule = [&](const char* match, int p1) {
    return OperatorRule{.match = match, .layout = layout_of(axes, d.p0, p1)};
  };
  return {rule("*", d.embedding), rule("*attn.qkv", d.qkv), rule("*attn.proj", d.proj),
          rule(first, d.fc1),     rule(second, d.fc2),      rule("head", d.head)};
}

inline std::vector<OperatorRule> with_sums(std::vector<OperatorRule> rules, PartialSums sum) {
  for (OperatorRule& rule : rules) rule.sum = sum;
  return rules;
}

/// A transformer whose layers each have a number of ranks that share their weights by columns, then by rows.
struct TensorRanks {
  int embedding, attention, mlp, attention_of_last, mlp_of_last;
};

/// Head and embedding alike: they may share a table.
inline std::vector<OperatorRule> rules_of(const AtomicAxes& axes, const TensorRanks& ranks, std::string_view model) {
  const bool is_gpt = model != "llama";
  const int all = axes.num_ranks(axes.all());
  const auto columns = [&](int t) { return layout_of(axes, all / t, t); };
  const auto rows = [&](int t) { return layout_of(axes, all / t, 1); };
  std::vector<OperatorRule> rules = {{.match = "embedding", .layout = rows(ranks.embedding)},
                                     {.match = "head", .layout = columns(ranks.embedding)}};
  for (const auto& [block, attention, mlp] :
       {std::tuple{0, ranks.attention, ranks.mlp}, std::tuple{1, ranks.attention_of_last, ranks.mlp_of_last}}) {
    const auto rule = [&](const char* name, const Layout& layout) {
      rules.push_back({.match = fmt::format("block[{}].{}", block, name), .layout = layout});
    };
    rule("attn.qkv", columns(attention));
    rule("attn.proj", rows(attention));
    rule(is_gpt ? "mlp.fc1" : "mlp.gate_up", columns(mlp));
    rule(is_gpt ? "mlp.fc2" : "mlp.down", rows(mlp));
  }
  return rules;
}

}  // namespace strata
