#pragma once

/// @file
/// Cyclic data parallelism evaluated as its rule is written: θ_{t+1} = θ_t − γ_t/N Σ_i ∇f_i(θ̂_i), where θ̂_i has of
/// stage j θ_t if fresh(i, j), else θ_{t-1}, and θ_{-1} = θ_0. Of a ReLU network of dense layers with a softmax, in
/// double precision, one loop after the other: nothing of strata's planning, lowering or kernels is in it.

#include <algorithm>
#include <cmath>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace strata::test {

using Values = std::vector<double>;

/// Says of sums whether single precision gives the same in whatever order it adds: all terms are multiples of a power
/// of two, and no partial sum has more than 24 bits above it.
class ExactInSingle {
 public:
  void sum_of(const Values& terms) {
    double size = 0.0, unit = 0.0;
    for (const double term : terms) {
      if (term == 0.0) continue;
      size += std::abs(term);
      const double lowest = lowest_bit(term);
      unit = unit == 0.0 ? lowest : std::min(unit, lowest);
    }
    if (size > 0.0 && size >= std::ldexp(unit, 24)) is_exact_ = false;
  }
  /// A softmax of @p logits: each probability 0, 1, or one over a power of two.
  void softmax_of(const Values& logits) {
    const double most = *std::ranges::max_element(logits);
    const auto num_most = static_cast<unsigned>(std::ranges::count(logits, most));
    if ((num_most & (num_most - 1)) != 0) is_exact_ = false;
    constexpr double vanishes = 110.0;  // exp(-104) is below the least number that single precision has
    for (const double x : logits) is_exact_ &= x == most || most - x > vanishes;
  }
  bool is_exact() const { return is_exact_; }

 private:
  static double lowest_bit(double x) {
    int exponent = 0;
    auto bits = static_cast<std::int64_t>(std::ldexp(std::frexp(std::abs(x), &exponent), 53));
    exponent -= 53;
    for (; bits % 2 == 0; bits /= 2) ++exponent;
    return std::ldexp(1.0, exponent);
  }
  bool is_exact_ = true;
};

struct DenseLayer {
  std::size_t in = 0, out = 0;
  Values weight, bias;  ///< weight: a row an output; bias: empty where it has none
  auto operator<=>(const DenseLayer&) const = default;
};
using DenseNetwork = std::vector<DenseLayer>;

struct LabelledImage {
  Values pixels;
  std::size_t label = 0;
};

/// Adds to @p gradient that of the loss of one image, times @p scale. @return the loss.
inline double add_gradient(const std::vector<const DenseLayer*>& layers, const LabelledImage& image, double scale,
                           DenseNetwork& gradient, ExactInSingle& exact) {
  std::vector<Values> inputs = {image.pixels};
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const DenseLayer& layer = *layers[l];
    Values out(layer.out);
    for (std::size_t o = 0; o < layer.out; ++o) {
      Values terms(layer.bias.empty() ? 0 : 1, layer.bias.empty() ? 0.0 : layer.bias[o]);
      for (std::size_t i = 0; i < layer.in; ++i) terms.push_back(layer.weight[o * layer.in + i] * inputs.back()[i]);
      exact.sum_of(terms);
      out[o] = std::accumulate(terms.begin(), terms.end(), 0.0);
      if (l + 1 < layers.size()) out[o] = std::max(0.0, out[o]);
    }
    inputs.push_back(std::move(out));
  }
  Values logits = inputs.back();
  exact.softmax_of(logits);
  const double most = *std::ranges::max_element(logits);
  double sum = 0.0;
  for (const double x : logits) sum += std::exp(x - most);
  const double loss = most + std::log(sum) - logits[image.label];
  Values delta(logits.size());
  for (std::size_t c = 0; c < logits.size(); ++c) {
    delta[c] = scale * (std::exp(logits[c] - most) / sum - (c == image.label ? 1.0 : 0.0));
  }
  for (std::size_t l = layers.size(); l-- > 0;) {
    const DenseLayer& layer = *layers[l];
    Values before(layer.in);
    for (std::size_t i = 0; i < layer.in; ++i) {
      Values terms;
      for (std::size_t o = 0; o < layer.out; ++o) terms.push_back(layer.weight[o * layer.in + i] * delta[o]);
      exact.sum_of(terms);
      before[i] = inputs[l][i] > 0.0 ? std::accumulate(terms.begin(), terms.end(), 0.0) : 0.0;
    }
    for (std::size_t o = 0; o < layer.out; ++o) {
      for (std::size_t i = 0; i < layer.in; ++i) {
        double& g = gradient[l].weight[o * layer.in + i];
        exact.sum_of({g, delta[o] * inputs[l][i]});
        g += delta[o] * inputs[l][i];
      }
      if (layer.bias.empty()) continue;
      exact.sum_of({gradient[l].bias[o], delta[o]});
      gradient[l].bias[o] += delta[o];
    }
    delta = std::move(before);
  }
  return loss;
}

struct Adam {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
};

struct CyclicTraining {
  DenseNetwork initial;
  std::vector<int> stage_of_layer;
  std::vector<std::string> fresh;  ///< by micro-batch a digit a stage
  int steps = 1;
  std::size_t samples = 1;  ///< of a micro-batch
  std::function<LabelledImage(int step, std::size_t sample)> image;
  std::function<double(int step)> rate;
  double momentum = 0.0;
  double weight_decay = 0.0;   ///< of weights, not of biases
  std::optional<Adam> adam{};  ///< none: gradient descent with momentum
  double clip_norm = 0.0;      ///< of the step's mean gradient, all layers together; 0: it is not clipped
};

struct CyclicResult {
  DenseNetwork network;
  Values losses;  ///< by step: the mean over the batch
  Values norms;   ///< by step: of its gradient, before it was clipped
  bool is_exact = true;
};

/// What an optimizer remembers of one parameter, and how it moves it by gradient @p g at @p step, counted from 0.
struct Moments {
  Values first, second;
  void update(Values& values, const Values& g, const CyclicTraining& training, int step, double decay,
              ExactInSingle& exact) {
    if (training.adam) {
      adam(values, g, training, step, decay);
      exact.sum_of({0.1, 0.2});  // no power of two
      return;
    }
    for (std::size_t e = 0; e < values.size(); ++e) {
      double& v = first[e];
      exact.sum_of({training.momentum * v, g[e], decay * values[e]});
      v = training.momentum * v + g[e] + decay * values[e];
      exact.sum_of({values[e], training.rate(step) * v});
      values[e] -= training.rate(step) * v;
    }
  }

 private:
  /// With decay apart from the gradient (AdamW), as Loshchilov and Hutter write it.
  void adam(Values& values, const Values& g, const CyclicTraining& training, int step, double decay) {
    const Adam& a = *training.adam;
    for (std::size_t e = 0; e < values.size(); ++e) {
      first[e] = a.beta1 * first[e] + (1.0 - a.beta1) * g[e];
      second[e] = a.beta2 * second[e] + (1.0 - a.beta2) * g[e] * g[e];
      const double m = first[e] / (1.0 - std::pow(a.beta1, step + 1));
      const double v = second[e] / (1.0 - std::pow(a.beta2, step + 1));
      values[e] -= training.rate(step) * (m / (std::sqrt(v) + a.epsilon) + decay * values[e]);
    }
  }
};

/// A network and what its optimizer remembers of it.
struct Trainee {
  explicit Trainee(const DenseNetwork& initial) : network(initial) {
    for (const DenseLayer& layer : initial) {
      const auto zeros = [](const Values& like) { return Moments{Values(like.size(), 0.0), Values(like.size(), 0.0)}; };
      weights.push_back(zeros(layer.weight));
      biases.push_back(zeros(layer.bias));
    }
  }
  void update(std::size_t l, const DenseNetwork& gradient, const CyclicTraining& training, int step,
              ExactInSingle& exact) {
    weights[l].update(network[l].weight, gradient[l].weight, training, step, training.weight_decay, exact);
    biases[l].update(network[l].bias, gradient[l].bias, training, step, 0.0, exact);
  }
  DenseNetwork network;
  std::vector<Moments> weights, biases;  ///< by layer
};

inline DenseNetwork zeros_like(DenseNetwork network) {
  for (DenseLayer& layer : network) {
    std::ranges::fill(layer.weight, 0.0);
    std::ranges::fill(layer.bias, 0.0);
  }
  return network;
}

inline std::vector<const DenseLayer*> layers_of(const DenseNetwork& network) {
  std::vector<const DenseLayer*> layers;
  for (const DenseLayer& layer : network) layers.push_back(&layer);
  return layers;
}

/// Adds the gradients of micro-batch @p i to @p gradient. @return the sum of its losses.
inline double add_micro_batch(const CyclicTraining& training, int step, std::size_t i,
                              const std::vector<const DenseLayer*>& read, DenseNetwork& gradient,
                              ExactInSingle& exact) {
  const double scale = 1.0 / static_cast<double>(training.fresh.size() * training.samples);
  double loss = 0.0;
  for (std::size_t s = 0; s < training.samples; ++s) {
    loss += add_gradient(read, training.image(step, i * training.samples + s), scale, gradient, exact);
  }
  return loss;
}

inline bool is_fresh(const CyclicTraining& training, std::size_t micro_batch, std::size_t layer) {
  return training.fresh[micro_batch][static_cast<std::size_t>(training.stage_of_layer[layer])] == '1';
}

/// Makes @p gradient shorter if it is longer than the training lets it be. @return how long it was.
inline double clip(DenseNetwork& gradient, const CyclicTraining& training, ExactInSingle& exact) {
  double squares = 0.0;
  for (const DenseLayer& layer : gradient) {
    for (const double g : layer.weight) squares += g * g;
    for (const double g : layer.bias) squares += g * g;
  }
  const double norm = std::sqrt(squares);
  if (training.clip_norm == 0.0) return norm;
  exact.sum_of({0.1, 0.2});  // a root is no power of two
  const double factor = std::min(1.0, training.clip_norm / (norm + 1e-6));
  for (DenseLayer& layer : gradient) {
    for (double& g : layer.weight) g *= factor;
    for (double& g : layer.bias) g *= factor;
  }
  return norm;
}

inline CyclicResult evaluate_cyclic(const CyclicTraining& training) {
  ExactInSingle exact;
  Trainee now(training.initial);
  DenseNetwork last = training.initial;
  CyclicResult result;
  const std::size_t num_samples = training.fresh.size() * training.samples;
  for (int step = 0; step < training.steps; ++step) {
    DenseNetwork gradient = zeros_like(last);
    double loss = 0.0;
    for (std::size_t i = 0; i < training.fresh.size(); ++i) {
      std::vector<const DenseLayer*> read = layers_of(last);
      for (std::size_t l = 0; l < read.size(); ++l) {
        if (is_fresh(training, i, l)) read[l] = &now.network[l];
      }
      loss += add_micro_batch(training, step, i, read, gradient, exact);
    }
    result.losses.push_back(loss / static_cast<double>(num_samples));
    result.norms.push_back(clip(gradient, training, exact));
    last = now.network;
    for (std::size_t l = 0; l < last.size(); ++l) now.update(l, gradient, training, step, exact);
  }
  result.network = std::move(now.network);
  result.is_exact = exact.is_exact();
  return result;
}

/// The same as the paper's authors imitate it on ordinary data parallelism: every worker has a network of its own and
/// updates it, layer by layer, by the mean of all workers' gradients of this step where it is fresh, else by that of
/// the step before. The rate is constant: theirs would be the wrong step's.
inline DenseNetwork imitate_cyclic(const CyclicTraining& training) {
  ExactInSingle exact;
  const std::size_t num_workers = training.fresh.size();
  std::vector<Trainee> workers(num_workers, Trainee(training.initial));
  Trainee newest(training.initial);
  DenseNetwork before = zeros_like(training.initial);
  for (int step = 0; step < training.steps; ++step) {
    DenseNetwork gradient = zeros_like(before);
    for (std::size_t i = 0; i < num_workers; ++i) {
      add_micro_batch(training, step, i, layers_of(workers[i].network), gradient, exact);
    }
    for (std::size_t l = 0; l < gradient.size(); ++l) {
      newest.update(l, gradient, training, step, exact);
      for (std::size_t i = 0; i < num_workers; ++i) {
        if (is_fresh(training, i, l)) {
          workers[i].update(l, gradient, training, step, exact);
        } else if (step > 0) {
          workers[i].update(l, before, training, step - 1, exact);
        }
      }
    }
    before = std::move(gradient);
  }
  return std::move(newest.network);
}

}  // namespace strata::test
