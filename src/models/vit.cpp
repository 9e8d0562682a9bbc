/// @file
/// Vision transformer: patches of an image as tokens behind a class token, blocks as GPT's whose attention sees all
/// positions, a linear head on the class token's row.
/// Source: Dosovitskiy et al., "An Image is Worth 16x16 Words", 2021, eq. 1 to 4 and app. B.1: GELU by erf, dropout
/// behind positions and behind each dense layer but those of queries, keys and values. Layer norm's epsilon as in
/// torchvision. Initial values as in Touvron et al., "Training data-efficient image transformers", 2021, and its code:
/// normal 0.02 for weights, class token and positions, uniform in ±1/√in for patches; all biases begin at 0.

#include <fmt/core.h>

#include <cmath>

#include "models/family.hpp"
#include "models/graph_builder.hpp"

namespace strata {
namespace {

constexpr double vit_norm_epsilon = 1e-6;
constexpr double vit_weight_deviation = 0.02;

struct Vit {
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t ffn_hidden = 0;
  std::int64_t patch_size = 0;
  std::int64_t image_size = 0;
  std::int64_t num_classes = 0;
  double dropout = 0.0;
};

Vit read_vit_options(const ModelOptions& options) {
  accept_only(options, "layers | hidden | heads | ffn_hidden | patch_size | image_size | num_classes | dropout");
  Vit vit;
  vit.layers = required(options, "layers", options.layers);
  vit.hidden = required(options, "hidden", options.hidden);
  vit.heads = required(options, "heads", options.heads);
  if (vit.hidden % vit.heads != 0) {
    refuse(options, "heads", fmt::format("{} do not divide hidden {}", vit.heads, vit.hidden));
  }
  vit.ffn_hidden = value_or(options, "ffn_hidden", options.ffn_hidden, 4 * vit.hidden);
  vit.patch_size = value_or(options, "patch_size", options.patch_size, 16);
  vit.image_size = value_or(options, "image_size", options.image_size, 224);
  if (vit.image_size > 4096) refuse(options, "image_size", fmt::format("{}; accepted: 1 to 4096", vit.image_size));
  if (vit.image_size % vit.patch_size != 0) {
    refuse(options, "patch_size",
           fmt::format("{} does not divide an image of {} pixels a side", vit.patch_size, vit.image_size));
  }
  vit.num_classes = value_or(options, "num_classes", options.num_classes, 1000, 2);
  vit.dropout = dropout_of(options, 0.0);
  return vit;
}

int add_vit_block(GraphBuilder& graph, int x, const Vit& vit) {
  const auto dense = [&](std::string_view name, int from, std::int64_t out) {
    return graph.linear(name, from,
                        {.in = graph.shape(from).back(), .out = out, .weight = normal(vit_weight_deviation)});
  };
  int y = graph.layer_norm("attn.norm", x, vit_norm_epsilon);
  y = dense("attn.qkv", y, 3 * vit.hidden);
  y = graph.full_attention("attn.core", y, {vit.heads, vit.heads, vit.hidden / vit.heads}, 0.0);
  y = dense("attn.proj", y, vit.hidden);
  y = graph.dropout("attn.dropout", y, vit.dropout);
  x = graph.add("attn.add", x, y);
  y = graph.layer_norm("mlp.norm", x, vit_norm_epsilon);
  y = graph.gelu_erf("mlp.gelu", dense("mlp.fc1", y, vit.ffn_hidden));
  y = graph.dropout("mlp.dropout1", y, vit.dropout);
  y = dense("mlp.fc2", y, vit.hidden);
  y = graph.dropout("mlp.dropout2", y, vit.dropout);
  return graph.add("mlp.add", x, y);
}

}  // namespace

ModelGraph build_vit(const ModelOptions& options) {
  const Vit vit = read_vit_options(options);
  GraphBuilder graph(options.name);
  int x = graph.input("image", {vit.image_size, vit.image_size, 3}, TensorRole::image);
  const int label = graph.input("label", {}, TensorRole::targets);
  const double bound = 1.0 / std::sqrt(3.0 * static_cast<double>(vit.patch_size * vit.patch_size));
  x = graph.convolution("patch", x,
                        {.out = vit.hidden,
                         .kernel = vit.patch_size,
                         .stride = vit.patch_size,
                         .padding = 0,
                         .weight = {Initializer::Kind::uniform, -bound, bound}});
  x = graph.class_token("embedding", x, normal(vit_weight_deviation));
  x = graph.dropout("embedding_dropout", x, vit.dropout);
  for (std::int64_t i = 0; i < vit.layers; ++i) {
    graph.begin_block(fmt::format("block[{}]", i));
    x = add_vit_block(graph, x, vit);
    graph.end_block();
  }
  x = graph.layer_norm("final_norm", x, vit_norm_epsilon);
  x = graph.first_row("class_row", x);
  x = graph.linear("head", x, {.in = vit.hidden, .out = vit.num_classes, .weight = normal(vit_weight_deviation)});
  graph.cross_entropy("loss", x, label);
  return graph.finish(1);
}

}  // namespace strata
