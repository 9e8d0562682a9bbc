/// @file
/// Row by row: global position, sample, copy.

#include "data/batch.hpp"

#include <fmt/core.h>

#include "base/error.hpp"

namespace strata::data {

void load_tokens(const TokenDataset& dataset, const Order& order, std::int64_t step, std::int64_t first_position,
                 std::span<std::int32_t> input, std::span<std::int32_t> target) {
  const auto length = static_cast<std::size_t>(dataset.sequence_length());
  STRATA_INVARIANT(order.num_samples == dataset.num_samples(), "the order is another dataset's");
  STRATA_INVARIANT(input.size() == target.size() && input.size() % length == 0,
                   fmt::format("spans of {} and {} for sequence length {}", input.size(), target.size(), length));
  for (std::size_t row = 0; row * length < input.size(); ++row) {
    const std::int64_t sample = order.sample(step, first_position + static_cast<std::int64_t>(row));
    dataset.tokens(sample, input.subspan(row * length, length), target.subspan(row * length, length));
  }
}

void load_images(const ImageDataset& dataset, const Order& order, std::int64_t step, std::int64_t first_position,
                 std::span<float> pixels, std::span<std::int32_t> labels) {
  const auto floats =
      static_cast<std::size_t>(dataset.image_size() * dataset.image_size() * ImageDataset::num_channels);
  STRATA_INVARIANT(order.num_samples == dataset.num_samples(), "the order is another dataset's");
  STRATA_INVARIANT(pixels.size() == labels.size() * floats,
                   fmt::format("{} floats for {} images of {}", pixels.size(), labels.size(), floats));
  for (std::size_t row = 0; row < labels.size(); ++row) {
    const std::int64_t sample = order.sample(step, first_position + static_cast<std::int64_t>(row));
    dataset.image(sample, pixels.subspan(row * floats, floats), labels[row]);
  }
}

}  // namespace strata::data
