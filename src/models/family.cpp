/// @file
/// Checks of options shared by the families.

#include "models/family.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.hpp"

namespace strata {
namespace {

bool is_among(std::string_view word, std::string_view accepted) {
  while (!accepted.empty()) {
    const std::size_t bar = accepted.find(" | ");
    if (accepted.substr(0, bar) == word) return true;
    accepted.remove_prefix(bar == std::string_view::npos ? accepted.size() : bar + 3);
  }
  return false;
}

}  // namespace

void refuse(const ModelOptions& options, std::string_view key, std::string_view message) {
  throw UserError(fmt::format("model `{}`: {}: {}", options.name, key, message));
}

void accept_only(const ModelOptions& options, std::string_view accepted) {
  const std::array<std::pair<std::string_view, bool>, 13> given = {{
      {"layers", options.layers.has_value()},
      {"hidden", options.hidden.has_value()},
      {"heads", options.heads.has_value()},
      {"kv_heads", options.kv_heads.has_value()},
      {"ffn_hidden", options.ffn_hidden.has_value()},
      {"vocabulary", options.vocabulary.has_value()},
      {"sequence_length", options.sequence_length.has_value()},
      {"dropout", options.dropout.has_value()},
      {"tied_head", options.tied_head.has_value()},
      {"image_size", options.image_size.has_value()},
      {"patch_size", options.patch_size.has_value()},
      {"num_classes", options.num_classes.has_value()},
      {"widths", !options.widths.empty()},
  }};
  for (const auto& [key, is_given] : given) {
    if (is_given && !is_among(key, accepted)) {
      refuse(options, key, fmt::format("no option of this model; accepted: {}", accepted));
    }
  }
}

std::int64_t required(const ModelOptions& options, std::string_view key, const std::optional<std::int64_t>& value,
                      std::int64_t minimum) {
  if (!value) {
    refuse(options, key, "is missing; a family's name needs it, a preset has it");
  }
  return value_or(options, key, value, 0, minimum);
}

std::int64_t value_or(const ModelOptions& options, std::string_view key, const std::optional<std::int64_t>& value,
                      std::int64_t fallback, std::int64_t minimum) {
  const std::int64_t number = value.value_or(fallback);
  // Products of two dims and a layer count stay in 64 bits, and a graph of all layers in memory.
  const std::int64_t maximum = std::int64_t{1} << (key == "layers" ? 14 : 24);
  if (number < minimum || number > maximum) {
    refuse(options, key, fmt::format("{}; accepted: {} to {}", number, minimum, maximum));
  }
  return number;
}

double dropout_of(const ModelOptions& options, double fallback) {
  const double probability = options.dropout.value_or(fallback);
  if (!(probability >= 0.0 && probability < 1.0)) {
    refuse(options, "dropout", fmt::format("{}; accepted: 0 <= dropout < 1", probability));
  }
  return probability;
}

}  // namespace strata
