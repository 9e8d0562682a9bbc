/// @file
/// The loss of a vision transformer is that of its equations, evaluated in double with plain loops: patches, class
/// token and positions, attention that sees all positions, GELU by erf, the class token's row.

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "mpi/exec/networks.hpp"

namespace strata::test_vision_transformer {
namespace {

using Rows = std::vector<std::vector<double>>;

/// Of vit-nano with two layers: sizes as its preset has them.
class Equations {
 public:
  explicit Equations(const std::map<std::string, std::vector<float>>& parameters) : parameters_(parameters) {}

  static constexpr std::size_t pixels = 16, patch = 4, hidden = 32, heads = 4, head_dim = hidden / heads, classes = 10;
  static constexpr double epsilon = 1e-6;

  double loss(const std::vector<float>& image, std::int32_t label) const {
    Rows x = tokens(image);
    for (const std::string block : {"block[0].", "block[1]."}) {
      const Rows attended = attention(linear(block + "attn.qkv", layer_norm(block + "attn.norm", x)));
      add(x, linear(block + "attn.proj", attended));
      Rows inner = linear(block + "mlp.fc1", layer_norm(block + "mlp.norm", x));
      for (std::vector<double>& row : inner) {
        for (double& value : row) value *= 0.5 * (1.0 + std::erf(value / std::numbers::sqrt2));
      }
      add(x, linear(block + "mlp.fc2", inner));
    }
    const std::vector<double> logits = linear("head", {layer_norm("final_norm", x).front()}).front();
    double sum = 0.0;
    for (const double logit : logits) sum += std::exp(logit);
    return std::log(sum) - logits[static_cast<std::size_t>(label)];
  }

 private:
  double parameter(const std::string& name, std::size_t i) const {
    return static_cast<double>(parameters_.at(name).at(i));
  }

  static void add(Rows& x, const Rows& y) {
    for (std::size_t t = 0; t < x.size(); ++t) {
      for (std::size_t i = 0; i < x[t].size(); ++i) x[t][i] += y[t][i];
    }
  }

  Rows tokens(const std::vector<float>& image) const {
    constexpr std::size_t across = pixels / patch;
    Rows rows(1 + across * across, std::vector<double>(hidden));
    for (std::size_t t = 0; t < rows.size(); ++t) {
      for (std::size_t i = 0; i < hidden; ++i) {
        double value = t == 0 ? parameter("embedding.token", i) : parameter("patch.bias", i);
        for (std::size_t k = 0; t > 0 && k < patch * patch * 3; ++k) {
          const std::size_t row = (t - 1) / across * patch + k / (patch * 3);
          const std::size_t column = (t - 1) % across * patch + k / 3 % patch;
          value += parameter("patch.weight", i * patch * patch * 3 + k) *
                   static_cast<double>(image[(row * pixels + column) * 3 + k % 3]);
        }
        rows[t][i] = value + parameter("embedding.positions", t * hidden + i);
      }
    }
    return rows;
  }

  Rows linear(const std::string& name, const Rows& x) const {
    const std::size_t in = x.front().size();
    const std::size_t out = parameters_.at(name + ".bias").size();
    Rows y(x.size(), std::vector<double>(out));
    for (std::size_t t = 0; t < x.size(); ++t) {
      for (std::size_t o = 0; o < out; ++o) {
        y[t][o] = parameter(name + ".bias", o);
        for (std::size_t i = 0; i < in; ++i) y[t][o] += parameter(name + ".weight", o * in + i) * x[t][i];
      }
    }
    return y;
  }

  Rows layer_norm(const std::string& name, Rows x) const {
    for (std::vector<double>& row : x) {
      double mean = 0.0;
      double variance = 0.0;
      for (const double value : row) mean += value / hidden;
      for (const double value : row) variance += (value - mean) * (value - mean) / hidden;
      for (std::size_t i = 0; i < hidden; ++i) {
        row[i] = (row[i] - mean) / std::sqrt(variance + epsilon) * parameter(name + ".weight", i) +
                 parameter(name + ".bias", i);
      }
    }
    return x;
  }

  static Rows attention(const Rows& qkv) {
    Rows y(qkv.size(), std::vector<double>(hidden));
    for (std::size_t h = 0; h < heads; ++h) {
      for (std::size_t i = 0; i < qkv.size(); ++i) {
        std::vector<double> weight(qkv.size());
        double sum = 0.0;
        for (std::size_t j = 0; j < qkv.size(); ++j) {
          double score = 0.0;
          for (std::size_t d = h * head_dim; d < (h + 1) * head_dim; ++d) score += qkv[i][d] * qkv[j][hidden + d];
          weight[j] = std::exp(score / std::sqrt(static_cast<double>(head_dim)));
          sum += weight[j];
        }
        for (std::size_t j = 0; j < qkv.size(); ++j) {
          for (std::size_t d = h * head_dim; d < (h + 1) * head_dim; ++d) {
            y[i][d] += weight[j] / sum * qkv[j][2 * hidden + d];
          }
        }
      }
    }
    return y;
  }

  const std::map<std::string, std::vector<float>>& parameters_;
};

TEST(VisionTransformer, LossIsThatOfItsEquations) {
  comm::World world;
  comm::Engine engine{world, {.watchdog_seconds = 60}};
  constexpr std::int64_t samples = 3;
  Training training{.graph = build_model({.name = "vit-nano"}), .plan = sgd(samples)};
  training.classes = Equations::classes;
  // Every parameter matters: of the model's own, biases are 0, and scores so small that attention is a mean.
  training.initial = [](const std::string& parameter, std::span<float> values) {
    const RandomStream random{.seed = 3, .stream = stream_of(parameter)};
    const float scale = parameter.ends_with("qkv.weight") ? 1.0F : 0.4F;
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = scale * (2.0F * random.uniform(i) - 1.0F);
  };
  const Trained trained = train(training, "single", 1, world, engine);

  CountedInputs inputs(training.vocabulary, training.classes);
  constexpr std::size_t size = Equations::pixels * Equations::pixels * 3;
  double expected = 0.0;
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    std::vector<float> image(size);
    std::vector<std::int32_t> label(1);
    inputs.load_images(0, sample, 1, image, label);
    expected += Equations(trained.initial).loss(image, label.front()) / static_cast<double>(samples);
  }
  EXPECT_GT(std::abs(expected - std::log(10.0)), 0.1) << "nothing is learnt of the equations";
  EXPECT_NEAR(trained.losses[0], expected, 2e-6 * expected);
}

}  // namespace
}  // namespace strata::test_vision_transformer
