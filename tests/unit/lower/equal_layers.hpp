#pragma once

/// @file
/// A model whose layers are of one size, so that what stages hold and send is counted in stages, and what of it a rank
/// holds.

#include <fmt/format.h>

#include <cstdint>

#include "ir/program/program.hpp"
#include "models/graph_builder.hpp"

namespace strata {

constexpr std::int64_t layer_width = 16;
constexpr std::int64_t layer_bytes = layer_width * layer_width * 4;  ///< of a layer's weight in f32

/// Linear layers without biases, each a block, of which each is a stage where there are as many stages.
inline ModelGraph equal_layers(int count) {
  GraphBuilder graph("equal");
  int x = graph.input("image", {layer_width}, TensorRole::image);
  const int label = graph.input("label", {}, TensorRole::targets);
  for (int j = 0; j < count; ++j) {
    graph.begin_block(fmt::format("block[{}]", j));
    x = graph.linear("linear", x, {.in = layer_width, .out = layer_width, .bias = false});
    graph.end_block();
  }
  graph.cross_entropy("loss", x, label);
  return graph.finish(1);
}

/// Bytes of @p category that a rank holds from step to step.
inline std::int64_t held_bytes(const Program& program, Category category) {
  std::int64_t bytes = 0;
  for (const Buffer& buffer : program.buffers) {
    if (buffer.persistent && buffer.category == category) bytes += buffer.size_bytes();
  }
  return bytes;
}

}  // namespace strata
