/// @file
/// ResNet-18 and -50: a stem, four stages of residual blocks, the mean over all positions, one dense layer. Below 64
/// pixels the CIFAR form: the stem is a 3×3 convolution of stride 1 and there is no max pool behind it.
/// Source: He et al., "Deep Residual Learning for Image Recognition", 2015, table 1, with projections where shapes
/// change (option B). As in torchvision, a bottleneck's stride is that of its 3×3 convolution, convolutions have no
/// bias and begin Kaiming normal over fan-out, the dense layer's weight uniform in ±1/√in; its bias begins at 0.
/// Batch norm goes by the statistics of a rank's micro-batch; there are no running ones, which training does not read.

#include <fmt/core.h>

#include <array>
#include <cmath>

#include "models/family.hpp"
#include "models/graph_builder.hpp"

namespace strata {
namespace {

constexpr int num_resnet_stages = 4;
constexpr std::int64_t smallest_imagenet_form = 64;  // pixels
constexpr double batch_norm_epsilon = 1e-5;
constexpr double batch_norm_momentum = 0.1;

struct ResnetDepth {
  std::int64_t layers;     ///< convolutions of the main path and the dense layer
  std::int64_t expansion;  ///< channels that a block gives over those of its 3×3 convolutions
  bool is_bottleneck;      ///< 1×1, 3×3, 1×1 instead of two of 3×3
  std::array<int, num_resnet_stages> blocks;
};
constexpr std::array resnet_depths = {ResnetDepth{18, 1, false, {2, 2, 2, 2}}, ResnetDepth{50, 4, true, {3, 4, 6, 3}}};

struct ConvolutionShape {
  std::int64_t out = 0;
  std::int64_t kernel = 3;
  std::int64_t stride = 1;
};

/// A convolution that keeps the size (but for its stride) and the norm behind it, named `conv` and `norm` and @p
/// suffix.
int add_convolution(GraphBuilder& graph, const std::string& prefix, const std::string& suffix, int x,
                    const ConvolutionShape& shape) {
  const auto fan_out = static_cast<double>(shape.out * shape.kernel * shape.kernel);
  x = graph.convolution(prefix + "conv" + suffix, x,
                        {.out = shape.out,
                         .kernel = shape.kernel,
                         .stride = shape.stride,
                         .padding = shape.kernel / 2,
                         .bias = false,
                         .weight = normal(std::sqrt(2.0 / fan_out))});
  return graph.batch_norm(prefix + "norm" + suffix, x, batch_norm_epsilon, batch_norm_momentum);
}

/// @param channels of the 3×3 convolutions.
int add_residual_block(GraphBuilder& graph, int x, const ResnetDepth& depth, std::int64_t channels,
                       std::int64_t stride) {
  const std::int64_t out = channels * depth.expansion;
  int y = x;
  if (depth.is_bottleneck) {
    y = graph.relu("relu1", add_convolution(graph, "", "1", y, {.out = channels, .kernel = 1}));
    y = graph.relu("relu2", add_convolution(graph, "", "2", y, {.out = channels, .stride = stride}));
    y = add_convolution(graph, "", "3", y, {.out = out, .kernel = 1});
  } else {
    y = graph.relu("relu1", add_convolution(graph, "", "1", y, {.out = channels, .stride = stride}));
    y = add_convolution(graph, "", "2", y, {.out = out});
  }
  if (stride != 1 || graph.shape(x).back() != out) {
    x = add_convolution(graph, "skip.", "", x, {.out = out, .kernel = 1, .stride = stride});
  }
  return graph.relu("relu", graph.add("add", x, y));
}

const ResnetDepth& resnet_depth(const ModelOptions& options) {
  const std::int64_t layers = required(options, "layers", options.layers);
  for (const ResnetDepth& depth : resnet_depths) {
    if (depth.layers == layers) return depth;
  }
  refuse(options, "layers", fmt::format("{}; accepted: 18 | 50", layers));
}

}  // namespace

ModelGraph build_resnet(const ModelOptions& options) {
  accept_only(options, "layers | image_size | num_classes | widths");
  const ResnetDepth& depth = resnet_depth(options);
  const std::vector<std::int64_t> widths =
      options.widths.empty() ? std::vector<std::int64_t>{64, 128, 256, 512} : options.widths;
  if (widths.size() != num_resnet_stages) {
    refuse(options, "widths",
           fmt::format("{} values; accepted: the channels of {} stages", widths.size(), num_resnet_stages));
  }
  for (const std::int64_t channels : widths) {
    if (channels < 1 || channels > 65536) refuse(options, "widths", fmt::format("{}; accepted: 1 to 65536", channels));
  }
  const std::int64_t image_size = value_or(options, "image_size", options.image_size, 224);
  if (image_size > 4096) refuse(options, "image_size", fmt::format("{}; accepted: 1 to 4096", image_size));
  const std::int64_t num_classes = value_or(options, "num_classes", options.num_classes, 1000, 2);

  GraphBuilder graph(options.name);
  int x = graph.input("image", {image_size, image_size, 3}, TensorRole::image);
  const int label = graph.input("label", {}, TensorRole::targets);
  if (image_size < smallest_imagenet_form) {
    x = graph.relu("stem.relu", add_convolution(graph, "stem.", "", x, {.out = widths[0]}));
  } else {
    x = graph.relu("stem.relu", add_convolution(graph, "stem.", "", x, {.out = widths[0], .kernel = 7, .stride = 2}));
    x = graph.max_pool("stem.pool", x, {.kernel = 3, .stride = 2, .padding = 1});
  }
  int number = 0;
  for (std::size_t stage = 0; stage < widths.size(); ++stage) {
    for (int i = 0; i < depth.blocks.at(stage); ++i) {
      graph.begin_block(fmt::format("block[{}]", number++));
      x = add_residual_block(graph, x, depth, widths[stage], stage > 0 && i == 0 ? 2 : 1);
      graph.end_block();
    }
  }
  x = graph.global_average_pool("pool", x);
  const std::int64_t features = graph.shape(x).back();
  const double bound = 1.0 / std::sqrt(static_cast<double>(features));
  x = graph.linear("head", x,
                   {.in = features, .out = num_classes, .weight = {Initializer::Kind::uniform, -bound, bound}});
  graph.cross_entropy("loss", x, label);
  return graph.finish(1);
}

}  // namespace strata
