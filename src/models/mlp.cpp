/// @file
/// A multilayer perceptron with ReLU: `widths` are the inputs, the hidden layers and the classes. Small enough to be
/// checked by hand; also the network on which AutoDDL compares its searches. Initial values: Kaiming normal over
/// fan-in, biases 0.

#include <fmt/core.h>

#include <cmath>

#include "models/family.hpp"
#include "models/graph_builder.hpp"

namespace strata {

ModelGraph build_mlp(const ModelOptions& options) {
  accept_only(options, "widths | dropout");
  const std::vector<std::int64_t>& widths = options.widths;
  if (widths.size() < 2) {
    refuse(options, "widths", fmt::format("{} values; accepted: inputs, hidden layers …, classes", widths.size()));
  }
  for (const std::int64_t width : widths) {
    value_or(options, "widths", width, 0);
  }
  const double dropout = dropout_of(options, 0.0);

  GraphBuilder graph(options.name);
  int x = graph.input("image", {widths.front()}, TensorRole::image);
  const int label = graph.input("label", {}, TensorRole::targets);
  const auto linear = [&](std::string_view name, std::size_t i) {
    x = graph.linear(
        name, x,
        {.in = widths[i], .out = widths[i + 1], .weight = normal(std::sqrt(2.0 / static_cast<double>(widths[i])))});
  };
  const std::size_t num_hidden = widths.size() - 2;
  for (std::size_t i = 0; i < num_hidden; ++i) {
    graph.begin_block(fmt::format("block[{}]", i));
    linear("linear", i);
    x = graph.relu("relu", x);
    x = graph.dropout("dropout", x, dropout);
    graph.end_block();
  }
  linear("head", num_hidden);
  graph.cross_entropy("loss", x, label);
  return graph.finish(1);
}

}  // namespace strata
