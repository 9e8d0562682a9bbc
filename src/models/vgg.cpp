/// @file
/// VGG without batch norm: five stages of 3×3 convolutions, each halved by a max pool, then three dense layers.
/// Source: Simonyan & Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition", 2014,
/// configurations A, B and D. Initial values as torchvision's: convolutions Kaiming normal over fan-out, dense layers
/// normal 0.01. That needs the wide classifier of 224 pixels: below it dense layers are Kaiming normal over fan-in, so
/// that small images train without batch norm. There is no pool before the classifier, which at 224 pixels is what
/// torchvision's does; the flattened order is row, column, channel.

#include <fmt/core.h>

#include <array>
#include <cmath>

#include "models/family.hpp"
#include "models/graph_builder.hpp"

namespace strata {
namespace {

constexpr int num_stages = 5;

struct Depth {
  std::int64_t layers;  ///< convolutions and dense layers
  std::array<int, num_stages> convolutions;
};
constexpr std::array depths = {Depth{11, {1, 1, 2, 2, 2}}, Depth{13, {2, 2, 2, 2, 2}}, Depth{16, {2, 2, 3, 3, 3}}};

Initializer kaiming(std::int64_t fan) { return normal(std::sqrt(2.0 / static_cast<double>(fan))); }

}  // namespace

ModelGraph build_vgg(const ModelOptions& options) {
  accept_only(options, "layers | hidden | dropout | image_size | num_classes | widths");
  const std::int64_t layers = required(options, "layers", options.layers);
  const Depth* depth = nullptr;
  for (const Depth& candidate : depths) {
    if (candidate.layers == layers) depth = &candidate;
  }
  if (depth == nullptr) {
    refuse(options, "layers", fmt::format("{}; accepted: 11 | 13 | 16", layers));
  }
  const std::vector<std::int64_t> widths =
      options.widths.empty() ? std::vector<std::int64_t>{64, 128, 256, 512, 512} : options.widths;
  if (widths.size() != num_stages) {
    refuse(options, "widths", fmt::format("{} values; accepted: the channels of {} stages", widths.size(), num_stages));
  }
  const std::int64_t image_size = value_or(options, "image_size", options.image_size, 224);
  if (image_size % (1 << num_stages) != 0 || image_size > 4096) {
    refuse(options, "image_size", fmt::format("{}; accepted: multiples of {} up to 4096", image_size, 1 << num_stages));
  }
  for (const std::int64_t channels : widths) {
    if (channels < 1 || channels > 65536) refuse(options, "widths", fmt::format("{}; accepted: 1 to 65536", channels));
  }
  const std::int64_t hidden = value_or(options, "hidden", options.hidden, 4096);
  const std::int64_t num_classes = value_or(options, "num_classes", options.num_classes, 1000, 2);
  const double dropout = dropout_of(options, 0.5);

  GraphBuilder graph(options.name);
  int x = graph.input("image", {image_size, image_size, 3}, TensorRole::image);
  const int label = graph.input("label", {}, TensorRole::targets);
  for (int stage = 0; stage < num_stages; ++stage) {
    const std::int64_t channels = widths[static_cast<std::size_t>(stage)];
    graph.begin_block(fmt::format("block[{}]", stage));
    for (int i = 0; i < depth->convolutions[static_cast<std::size_t>(stage)]; ++i) {
      x = graph.convolution(fmt::format("conv[{}]", i), x, {.out = channels, .weight = kaiming(channels * 9)});
      x = graph.relu(fmt::format("relu[{}]", i), x);
    }
    x = graph.max_pool("pool", x, {.kernel = 2, .stride = 2});
    graph.end_block();
  }

  const auto dense = [&](std::string_view name, std::int64_t in, std::int64_t out) {
    x = graph.linear(name, x, {.in = in, .out = out, .weight = image_size < 224 ? kaiming(in) : normal(0.01)});
  };
  const std::int64_t side = image_size >> num_stages;
  dense("classifier.fc1", side * side * widths.back(), hidden);
  x = graph.relu("classifier.relu1", x);
  x = graph.dropout("classifier.dropout1", x, dropout);
  dense("classifier.fc2", hidden, hidden);
  x = graph.relu("classifier.relu2", x);
  x = graph.dropout("classifier.dropout2", x, dropout);
  dense("classifier.fc3", hidden, num_classes);
  graph.cross_entropy("loss", x, label);
  return graph.finish(1);
}

}  // namespace strata
