#pragma once

/// @file
/// What tests of cyclic data parallelism train, on which ranks, and how that is compared with its evaluation.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "models/graph_builder.hpp"
#include "mpi/exec/training.hpp"
#include "partition/fresh_table.hpp"
#include "partition/stages.hpp"
#include "support/cyclic_evaluation.hpp"

namespace strata {

constexpr std::size_t width = 24;  ///< of every layer, and the number of classes

/// Layers of @p width without biases, one a block, and a head with one that goes with the last block.
inline ModelGraph even_mlp(int num_layers) {
  GraphBuilder graph("even");
  int x = graph.input("image", {static_cast<std::int64_t>(width)}, TensorRole::image);
  const int label = graph.input("label", {}, TensorRole::targets);
  for (int b = 0; b + 1 < num_layers; ++b) {
    graph.begin_block(fmt::format("block[{}]", b));
    x = graph.linear("linear", x, {.in = width, .out = width, .bias = false});
    x = graph.relu("relu", x);
    graph.end_block();
  }
  x = graph.linear("head", x, {.in = width, .out = width});
  graph.cross_entropy("loss", x, label);
  return graph.finish(1);
}

inline std::string name_of_layer(int layer, int num_layers) {
  return layer + 1 == num_layers ? "head" : fmt::format("block[{}].linear", layer);
}

inline std::vector<int> stages_of_layers(const ModelGraph& graph, const Stages& stages) {
  std::vector<int> result;
  const std::vector<Stage> cut = cut_into_stages(graph, stages);
  for (std::size_t s = 0; s < cut.size(); ++s) {
    for (const Operator& op : operators_of(graph, cut[s])) {
      if (op.kind == OperatorKind::linear) result.push_back(static_cast<int>(s));
    }
  }
  return result;
}

/// Images with one pixel, each for a chain of units through all layers. The head prefers class 0 by far, so that every
/// softmax is exactly 0 or 1 and yet every image pushes its chain: by one in the first of the two steps that it takes
/// part in, so that the second one finds it doubled, or not.
struct Chains {
  static constexpr std::size_t max_samples = 8;  ///< of a step: each has its own chain
  static test::LabelledImage image(int step, std::size_t sample) {
    const std::size_t pair_of_steps = (static_cast<std::size_t>(step) + sample % 2) / 2;
    const std::size_t chain = 1 + (max_samples * pair_of_steps + sample) % (width - 1);
    test::LabelledImage image{.pixels = test::Values(width, 0.0), .label = chain};
    image.pixels[chain] = 1.0;
    return image;
  }
  static test::DenseNetwork network(int num_layers) {
    test::DenseNetwork network;
    for (int l = 0; l < num_layers; ++l) {
      network.push_back({.in = width, .out = width, .weight = test::Values(width * width, 0.0), .bias = {}});
      for (std::size_t u = 0; u < width; ++u) network.back().weight[u * width + u] = 1.0;
    }
    network.back().bias.assign(width, 0.0);
    network.back().bias[0] = 4096.0;
    return network;
  }
};

/// What Chains train, exactly: momentum, and a rate that makes the mean over @p samples of each micro-batch a sum, or
/// half of it in every other step.
inline test::CyclicTraining chain_rule(const ModelGraph& graph, int num_layers, const Stages& stages,
                                       const FreshTable& fresh, int samples, int steps) {
  const int num_samples = samples * static_cast<int>(fresh.size());
  return {.initial = Chains::network(num_layers),
          .stage_of_layer = stages_of_layers(graph, stages),
          .fresh = fresh,
          .steps = steps,
          .samples = static_cast<std::size_t>(samples),
          .image = Chains::image,
          .rate = [=](int step) { return num_samples / (step % 2 + 1.0); },
          .momentum = 0.5};
}

/// Who computes what.
enum class Ranks { one, one_a_stage, one_a_micro_batch, walking };
inline std::string_view to_string(Ranks ranks) {
  switch (ranks) {
    case Ranks::one: return "one rank";
    case Ranks::one_a_stage: return "a rank a stage";
    case Ranks::one_a_micro_batch: return "a rank a micro-batch";
    case Ranks::walking: return "a rank a micro-batch, between which parameters walk";
  }
  return "?";
}

class Cyclic : public testing::Test {
 protected:
  comm::World world;
  comm::Engine engine{world, {.watchdog_seconds = 60}};

  static Plan cyclic_plan(int micro_batches, int stages, const std::string& fresh, Ranks ranks, int samples) {
    Plan plan;
    plan.strategy = "cyclic";
    const int stage_ranks = ranks == Ranks::one_a_stage ? stages : 1;
    const bool walks = ranks == Ranks::walking;
    const int replicas = ranks == Ranks::one_a_micro_batch || walks ? micro_batches : 1;
    plan.mesh.ranks_per_node = stage_ranks * replicas;
    plan.mesh.axes = {{"stage", stage_ranks}, {"micro_batch", replicas}};
    if (walks) {
      plan.mesh.placement = "zero-ring";
      plan.operators = {OperatorRule{.match = "*", .state = StateFactors{.walks = true}}};
    }
    plan.stages.count = stages;
    plan.schedule = {.kind = ScheduleKind::cyclic, .micro_batches = micro_batches, .fresh = fresh};
    plan.global_batch = static_cast<std::int64_t>(micro_batches) * samples;
    plan.optimizer = {.kind = "sgd", .momentum = 0.5};
    return plan;
  }

  static Training training_of(const test::CyclicTraining& rule, const ModelGraph& graph) {
    Training training{.graph = graph, .plan = {}};
    training.classes = width;
    training.steps = rule.steps;
    training.rate = rule.rate;
    training.image = [image_of = rule.image](std::int64_t step, std::int64_t sample, std::span<float> pixels) {
      const test::LabelledImage image = image_of(static_cast<int>(step), static_cast<std::size_t>(sample));
      if (!pixels.empty()) std::ranges::copy(image.pixels, pixels.begin());
      return static_cast<std::int32_t>(image.label);
    };
    training.initial = [network = rule.initial](const std::string& parameter, std::span<float> values) {
      const int num_layers = static_cast<int>(network.size());
      for (int l = 0; l < num_layers; ++l) {
        const test::DenseLayer& layer = network[static_cast<std::size_t>(l)];
        const std::string name = name_of_layer(l, num_layers);
        if (parameter == name + ".weight") std::ranges::copy(layer.weight, values.begin());
        if (parameter == name + ".bias") std::ranges::copy(layer.bias, values.begin());
      }
    };
    return training;
  }

  /// @param tolerance of each value, relative to the larger of it and 1; 0: bit for bit.
  static void expect_equal(const Trained& ours, const test::CyclicResult& expected, const std::string& what,
                           double tolerance = 0.0) {
    const int num_layers = static_cast<int>(expected.network.size());
    for (int l = 0; l < num_layers; ++l) {
      const test::DenseLayer& layer = expected.network[static_cast<std::size_t>(l)];
      for (const auto& [suffix, values] : {std::pair{".weight", &layer.weight}, {".bias", &layer.bias}}) {
        const auto held = ours.parameters.find(name_of_layer(l, num_layers) + suffix);
        if (held == ours.parameters.end()) continue;  // another rank's, or there is none
        const std::vector<double> found(held->second.begin(), held->second.end());
        if (tolerance == 0.0) {
          EXPECT_EQ(found, *values) << held->first << ", " << what;
          continue;
        }
        ASSERT_EQ(found.size(), values->size());
        for (std::size_t e = 0; e < found.size(); ++e) {
          const double value = (*values)[e];
          EXPECT_NEAR(found[e], value, tolerance * std::max(1.0, std::abs(value))) << held->first << ", " << what;
        }
      }
    }
  }
};

inline std::string joined(const FreshTable& table) {
  std::string text;
  for (const std::string& row : table) text += (text.empty() ? "" : " ") + row;
  return text;
}

/// Numbers that are not exact, with momentum and a constant rate.
inline test::CyclicTraining real_training(const ModelGraph& graph, int num_layers, const FreshTable& fresh) {
  const auto uniform = [](std::uint64_t stream, std::uint64_t index) {
    return static_cast<double>(RandomStream{.seed = 3, .stream = stream}.uniform(index)) - 0.5;
  };
  test::CyclicTraining rule{
      .initial = Chains::network(num_layers),
      .stage_of_layer = stages_of_layers(graph, {.count = static_cast<int>(fresh.front().size())}),
      .fresh = fresh,
      .steps = 20,
      .samples = 3,
      .image =
          [=](int step, std::size_t sample) {
            const auto stream = static_cast<std::uint64_t>(step) * 100 + sample;
            test::LabelledImage image{.pixels = test::Values(width), .label = stream * 7 % width};
            for (std::size_t p = 0; p < width; ++p) image.pixels[p] = uniform(stream, p);
            return image;
          },
      .rate = [](int) { return 0.125; },
      .momentum = 0.5};
  for (std::size_t l = 0; l < rule.initial.size(); ++l) {
    test::Values& weight = rule.initial[l].weight;
    for (std::size_t e = 0; e < weight.size(); ++e) {
      weight[e] = static_cast<double>(static_cast<float>(uniform(1000 + l, e)));
    }
    std::ranges::fill(rule.initial[l].bias, 0.0);
  }
  return rule;
}

/// ‖a - b‖₂ / ‖b‖₂ over all weights.
inline double relative_difference_of(const test::DenseNetwork& a, const test::DenseNetwork& b) {
  double difference = 0.0, size = 0.0;
  for (std::size_t l = 0; l < a.size(); ++l) {
    for (std::size_t e = 0; e < a[l].weight.size(); ++e) {
      difference += std::pow(a[l].weight[e] - b[l].weight[e], 2);
      size += std::pow(b[l].weight[e], 2);
    }
  }
  return std::sqrt(difference / size);
}

}  // namespace strata
