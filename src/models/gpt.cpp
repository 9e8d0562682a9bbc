/// @file
/// GPT-2: learned positions, layer norm before each sublayer, GELU, biases everywhere but in the head.
/// Source: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019; initial values as in its code
/// and in minGPT: normal 0.02, 0.02/√(2 L) for the two projections that write into the residual stream, biases 0.
/// Layers may differ in width (`widths`, heads of one size): a layer that is not as wide as the one before begins
/// with a linear without bias, as between the stages of a Swin transformer.

#include <fmt/core.h>

#include <cmath>

#include "models/family.hpp"
#include "models/graph_builder.hpp"

namespace strata {
namespace {

constexpr double gpt_norm_epsilon = 1e-5;

struct GptBlock {
  std::int64_t hidden = 0;
  std::int64_t ffn_hidden = 0;
  GraphBuilder::Heads heads;
};

struct Gpt {
  std::vector<GptBlock> blocks;
  double dropout = 0.0;
};

Gpt read_gpt_options(const ModelOptions& options) {
  accept_only(options,
              "layers | hidden | heads | ffn_hidden | vocabulary | sequence_length | dropout | tied_head | widths");
  Gpt gpt{.blocks = {}, .dropout = dropout_of(options, 0.0)};
  std::vector<std::int64_t> widths = options.widths;
  if (widths.empty()) {
    const std::int64_t layers = required(options, "layers", options.layers);
    const std::int64_t hidden = required(options, "hidden", options.hidden);
    widths.assign(static_cast<std::size_t>(layers), hidden);
  } else if (options.layers || options.hidden || options.ffn_hidden || options.tied_head.value_or(false)) {
    refuse(options, "widths",
           "says the number of layers and the width of each: layers, hidden, ffn_hidden and tied_head do not go with "
           "it");
  }
  // With widths that differ, `heads` is the number in the first layer; its head size holds everywhere.
  const std::int64_t heads = required(options, "heads", options.heads);
  for (const std::int64_t hidden : widths) {
    value_or(options, "widths", hidden, 0);
    const std::int64_t head_dim = widths.front() / heads;
    if (widths.front() % heads != 0 || hidden % head_dim != 0) {
      refuse(options, "heads",
             fmt::format("{} heads do not divide hidden {} into whole heads of the first layer's size", heads, hidden));
    }
    const std::int64_t ffn_hidden = value_or(options, "ffn_hidden", options.ffn_hidden, 4 * hidden);
    gpt.blocks.push_back({hidden, ffn_hidden, {hidden / head_dim, hidden / head_dim, head_dim}});
  }
  return gpt;
}

int add_block(GraphBuilder& graph, int x, const Gpt& gpt, const GptBlock& block) {
  const Initializer weight = normal(0.02);
  const Initializer residual = normal(0.02 / std::sqrt(2.0 * static_cast<double>(gpt.blocks.size())));
  const std::int64_t hidden = block.hidden;
  if (const std::int64_t before = graph.shape(x).back(); before != hidden) {
    x = graph.linear("resize", x, {.in = before, .out = hidden, .bias = false, .weight = weight});
  }
  int y = graph.layer_norm("attn.norm", x, gpt_norm_epsilon);
  y = graph.linear("attn.qkv", y, {.in = hidden, .out = 3 * hidden, .weight = weight});
  y = graph.causal_attention("attn.core", y, block.heads, gpt.dropout);
  y = graph.linear("attn.proj", y, {.in = hidden, .out = hidden, .weight = residual});
  y = graph.dropout("attn.dropout", y, gpt.dropout);
  x = graph.add("attn.add", x, y);
  y = graph.layer_norm("mlp.norm", x, gpt_norm_epsilon);
  y = graph.linear("mlp.fc1", y, {.in = hidden, .out = block.ffn_hidden, .weight = weight});
  y = graph.gelu("mlp.gelu", y);
  y = graph.linear("mlp.fc2", y, {.in = block.ffn_hidden, .out = hidden, .weight = residual});
  y = graph.dropout("mlp.dropout", y, gpt.dropout);
  return graph.add("mlp.add", x, y);
}

}  // namespace

ModelGraph build_gpt(const ModelOptions& options) {
  const Gpt gpt = read_gpt_options(options);
  const std::int64_t vocabulary = required(options, "vocabulary", options.vocabulary, 2);
  const std::int64_t sequence = required(options, "sequence_length", options.sequence_length);
  const Initializer weight = normal(0.02);

  GraphBuilder graph(options.name);
  const int tokens = graph.input("tokens", {sequence}, TensorRole::tokens);
  const int targets = graph.input("targets", {sequence}, TensorRole::targets);
  int x = graph.embedding("embedding", tokens, vocabulary, gpt.blocks.front().hidden, sequence, weight);
  x = graph.dropout("embedding_dropout", x, gpt.dropout);
  for (std::size_t i = 0; i < gpt.blocks.size(); ++i) {
    graph.begin_block(fmt::format("block[{}]", i));
    x = add_block(graph, x, gpt, gpt.blocks[i]);
    graph.end_block();
  }
  x = graph.layer_norm("final_norm", x, gpt_norm_epsilon);
  if (options.tied_head.value_or(false)) {
    x = graph.tied_linear("head", x, graph.parameter("embedding.table"));
  } else {
    x = graph.linear("head", x, {.in = graph.shape(x).back(), .out = vocabulary, .bias = false, .weight = weight});
  }
  graph.cross_entropy("loss", x, targets);
  return graph.finish(sequence);
}

}  // namespace strata
