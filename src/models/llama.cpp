/// @file
/// LLaMA: rotary positions, RMS norm before each sublayer, SwiGLU, grouped key and value heads, no bias.
/// Source: Touvron et al., "LLaMA: Open and Efficient Foundation Language Models", 2023 (epsilon 1e-6, theta 10000).
/// Query, key and value are one product, gate and up another. The paper does not print initial values: GPT-2's rule is
/// used. Without `ffn_hidden` the width is 8/3 h, the ratio that papers count with, down to a multiple of 32 so that
/// ranks can divide it; the released 7B model has 11008.

#include <fmt/core.h>

#include <cmath>

#include "models/family.hpp"
#include "models/graph_builder.hpp"

namespace strata {
namespace {

constexpr double llama_norm_epsilon = 1e-6;
constexpr double theta = 10000.0;

struct Llama {
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t ffn_hidden = 0;
  GraphBuilder::Heads heads;
  double dropout = 0.0;
};

Llama read_llama_options(const ModelOptions& options) {
  accept_only(options,
              "layers | hidden | heads | kv_heads | ffn_hidden | vocabulary | sequence_length | dropout | tied_head");
  Llama llama{.layers = required(options, "layers", options.layers),
              .hidden = required(options, "hidden", options.hidden),
              .heads = {},
              .dropout = dropout_of(options, 0.0)};
  const std::int64_t heads = required(options, "heads", options.heads);
  const std::int64_t kv_heads = value_or(options, "kv_heads", options.kv_heads, heads);
  if (llama.hidden % heads != 0 || (llama.hidden / heads) % 2 != 0) {
    refuse(options, "heads",
           fmt::format("{}; accepted: a divisor of hidden {} that leaves heads of even size", heads, llama.hidden));
  }
  if (heads % kv_heads != 0) {
    refuse(options, "kv_heads", fmt::format("{}; accepted: a divisor of heads {}", kv_heads, heads));
  }
  if (!options.ffn_hidden && llama.hidden < 12) {
    refuse(options, "ffn_hidden", fmt::format("is missing, and 8/3 of hidden {} is less than 32", llama.hidden));
  }
  llama.heads = {heads, kv_heads, llama.hidden / heads};
  llama.ffn_hidden = value_or(options, "ffn_hidden", options.ffn_hidden, llama.hidden * 8 / 3 / 32 * 32);
  return llama;
}

int add_block(GraphBuilder& graph, int x, const Llama& llama) {
  const Initializer weight = normal(0.02);
  const Initializer residual = normal(0.02 / std::sqrt(2.0 * static_cast<double>(llama.layers)));
  const std::int64_t hidden = llama.hidden;
  const std::int64_t ffn = llama.ffn_hidden;
  const std::int64_t qkv = (llama.heads.heads + 2 * llama.heads.kv_heads) * llama.heads.head_dim;
  int y = graph.rms_norm("attn.norm", x, llama_norm_epsilon);
  y = graph.linear("attn.qkv", y, {.in = hidden, .out = qkv, .bias = false, .weight = weight});
  y = graph.rotary("attn.rotary", y, llama.heads, theta);
  y = graph.causal_attention("attn.core", y, llama.heads, llama.dropout);
  y = graph.linear("attn.proj", y, {.in = hidden, .out = hidden, .bias = false, .weight = residual});
  y = graph.dropout("attn.dropout", y, llama.dropout);
  x = graph.add("attn.add", x, y);
  y = graph.rms_norm("mlp.norm", x, llama_norm_epsilon);
  y = graph.linear("mlp.gate_up", y, {.in = hidden, .out = 2 * ffn, .bias = false, .weight = weight});
  y = graph.swiglu("mlp.swiglu", y);
  y = graph.linear("mlp.down", y, {.in = ffn, .out = hidden, .bias = false, .weight = residual});
  y = graph.dropout("mlp.dropout", y, llama.dropout);
  return graph.add("mlp.add", x, y);
}

}  // namespace

ModelGraph build_llama(const ModelOptions& options) {
  const Llama llama = read_llama_options(options);
  const std::int64_t vocabulary = required(options, "vocabulary", options.vocabulary, 2);
  const std::int64_t sequence = required(options, "sequence_length", options.sequence_length);
  const Initializer weight = normal(0.02);

  GraphBuilder graph(options.name);
  const int tokens = graph.input("tokens", {sequence}, TensorRole::tokens);
  const int targets = graph.input("targets", {sequence}, TensorRole::targets);
  int x = graph.embedding("embedding", tokens, vocabulary, llama.hidden, 0, weight);
  x = graph.dropout("embedding_dropout", x, llama.dropout);
  for (std::int64_t i = 0; i < llama.layers; ++i) {
    graph.begin_block(fmt::format("block[{}]", i));
    x = add_block(graph, x, llama);
    graph.end_block();
  }
  x = graph.rms_norm("final_norm", x, llama_norm_epsilon);
  if (options.tied_head.value_or(false)) {
    x = graph.tied_linear("head", x, graph.parameter("embedding.table"));
  } else {
    x = graph.linear("head", x, {.in = llama.hidden, .out = vocabulary, .bias = false, .weight = weight});
  }
  graph.cross_entropy("loss", x, targets);
  return graph.finish(sequence);
}

}  // namespace strata
