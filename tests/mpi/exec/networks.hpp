#pragma once

/// @file
/// What modes are compared on: a network whose first step is exact, and small real models.

#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "mpi/exec/training.hpp"

namespace strata {

inline Plan sgd(std::int64_t global_batch) {
  Plan plan;
  plan.global_batch = global_batch;
  plan.optimizer = {.kind = "sgd", .momentum = 0.0};
  return plan;
}

/// Initial weights with which a ReLU network's step 1 is exact although its loss is a softmax: hidden units come in
/// pairs with equal weights, the head gives the two of a pair opposite weights. So all logits are 0, the softmax is
/// 1 / classes (a power of two), and yet gradients reach every layer.
inline void pairs(const std::string& parameter, std::span<float> values, const std::vector<std::int64_t>& widths) {
  const bool is_bias = parameter.ends_with("bias");
  const bool is_head = parameter.starts_with("head");
  const RandomStream random{.seed = 5, .stream = parameter.size() * 100 + static_cast<std::uint64_t>(parameter[6])};
  std::int64_t in = 0;
  for (std::size_t layer = 0; layer + 1 < widths.size(); ++layer) {
    if (static_cast<std::int64_t>(values.size()) == widths[layer] * widths[layer + 1]) in = widths[layer];
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t row = is_bias ? i : i / static_cast<std::size_t>(in);
    const std::size_t column = is_bias ? 0 : i % static_cast<std::size_t>(in);
    // Equal for the two rows of a pair in a hidden layer, opposite for the two columns of a pair in the head.
    const std::size_t key = is_head ? row * 1000 + column / 2 : row / 2 * 1000 + column;
    float value = std::floor(3.0F * random.uniform(key)) - 1.0F;
    if (is_head && column % 2 == 1) value = -value;
    if (is_head && is_bias) value = 0.0F;
    values[i] = 0.5F * value;
  }
}

/// @param widths hidden ones even, the last a power of two.
inline Training exact(int micro_batches, const std::vector<std::int64_t>& widths = {7, 12, 4}) {
  Training training{.graph = build_model({.name = "mlp", .widths = widths}), .plan = sgd(8 * micro_batches)};
  training.plan.schedule.micro_batches = micro_batches;
  training.classes = static_cast<int>(widths.back());
  training.dyadic = true;
  training.initial = [widths](const std::string& parameter, std::span<float> values) {
    pairs(parameter, values, widths);
  };
  return training;
}

struct RealModel {
  const char* name;
  ModelOptions options;
};

inline std::vector<RealModel> real_models() {
  return {
      {"gpt", {.name = "gpt-nano", .vocabulary = 101, .sequence_length = 33, .dropout = 0.1}},
      {"llama", {.name = "llama-nano", .vocabulary = 101, .sequence_length = 17}},
      {"vgg", {.name = "vgg-nano", .dropout = 0.25}},
      {"vit", {.name = "vit-nano", .dropout = 0.1}},
      {"mlp", {.name = "mlp-tiny"}},
  };
}

/// Buckets so small that every model has several: with one there is nothing to overlap and no order to get wrong.
inline Training real(const RealModel& model, std::int64_t global_batch) {
  Training training{.graph = build_model(model.options), .plan = sgd(global_batch)};
  training.plan.overlap.bucket_bytes = 4096;
  training.vocabulary = 101;
  return training;
}

}  // namespace strata
