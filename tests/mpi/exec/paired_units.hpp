#pragma once

/// @file
/// Initial weights with which step 1 of a ReLU network of any depth is exact although its loss is a softmax: hidden
/// units come in pairs, whose outputs are equal and which the head weighs against each other. So all logits are 0, the
/// softmax is 1 / classes (a power of two), and yet gradients reach every layer.

#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/random.hpp"

namespace strata {

/// A random one of -1/2, 0, 1/2.
inline float drawn(const std::string& parameter, std::size_t key) {
  const RandomStream random{.seed = 5, .stream = std::hash<std::string>{}(parameter)};
  return 0.5F * (std::floor(3.0F * random.uniform(key)) - 1.0F);
}

/// How the units of a layer's input come in pairs.
enum class Input { unpaired, equal, opposite };

/// Weights [rows, in] with which the two rows of a pair give equal outputs on every input whose pairs are equal or
/// opposite, yet push the two units of a pair of inputs apart: gradients reach every layer although all logits are 0.
/// Of an odd number the last unit has no pair.
inline void paired_rows(const std::string& parameter, std::span<float> values, std::size_t in, Input input) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t row = i / in;
    const bool odd = row % 2 == 1 && input != Input::unpaired;
    const bool alone = in % 2 == 1 && i % in == in - 1;
    const std::size_t column = odd && !alone ? (i % in) ^ 1U : i % in;
    const float value = drawn(parameter, row / 2 * 1000 + column);
    values[i] = odd && input == Input::opposite ? -value : value;
  }
}

/// Columns of a pair have opposite weights: pairs of equal inputs cancel. One without a pair has none.
inline void cancelling_columns(const std::string& parameter, std::span<float> values, std::size_t in) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float value = drawn(parameter, i / in * 1000 + i % in / 2);
    const bool alone = in % 2 == 1 && i % in == in - 1;
    values[i] = alone ? 0.0F : i % in % 2 == 1 ? -value : value;
  }
}

/// Of an mlp of these widths.
inline void paired_mlp(const std::string& parameter, std::span<float> values, const std::vector<std::int64_t>& widths) {
  const bool is_head = parameter.starts_with("head");
  if (parameter.ends_with("bias")) {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = is_head ? 0.0F : drawn(parameter, i / 2);
  } else if (is_head) {
    cancelling_columns(parameter, values, static_cast<std::size_t>(widths[widths.size() - 2]));
  } else {
    const auto layer = static_cast<std::size_t>(parameter[6] - '0');
    paired_rows(parameter, values, static_cast<std::size_t>(widths[layer]),
                layer == 0 ? Input::unpaired : Input::equal);
  }
}

}  // namespace strata
