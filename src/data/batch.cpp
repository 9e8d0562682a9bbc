/// @file
/// A batch is filled row by row: its global position names a sample, which is copied.

#include "data/batch.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "base/error.hpp"

namespace strata::data {

void load_tokens(const TokenDataset& dataset, const Order& order, std::int64_t step, std::int64_t first_position,
                 std::span<std::int32_t> input, std::span<std::int32_t> target) {
  const auto length = static_cast<std::size_t>(dataset.sequence_length());
  STRATA_INVARIANT(order.num_samples == dataset.num_samples(), "the order is another dataset's");
  const std::size_t size = std::max(input.size(), target.size());
  STRATA_INVARIANT((input.size() == target.size() || input.empty() || target.empty()) && size % length == 0,
                   fmt::format("spans of {} and {} for sequence length {}", input.size(), target.size(), length));
  const auto row_of = [length](std::span<std::int32_t> span, std::size_t row) {
    return span.empty() ? span : span.subspan(row * length, length);
  };
  for (std::size_t row = 0; row * length < size; ++row) {
    const std::int64_t sample = order.sample(step, first_position + static_cast<std::int64_t>(row));
    dataset.tokens(sample, row_of(input, row), row_of(target, row));
  }
}

void load_images(const ImageDataset& dataset, const Order& order, std::int64_t step, std::int64_t first_position,
                 std::span<float> pixels, std::span<std::int32_t> labels, const Augmentation& augmentation) {
  const auto floats = static_cast<std::size_t>(dataset.values_per_sample());
  STRATA_INVARIANT(order.num_samples == dataset.num_samples(), "the order is another dataset's");
  const std::size_t num_rows = std::max(labels.size(), pixels.size() / floats);
  STRATA_INVARIANT(
      (pixels.empty() || pixels.size() == num_rows * floats) && (labels.empty() || labels.size() == num_rows),
      fmt::format("{} floats for {} images of {}", pixels.size(), labels.size(), floats));
  for (std::size_t row = 0; row < num_rows; ++row) {
    const std::int64_t position = first_position + static_cast<std::int64_t>(row);
    const ViewDraw draw{.augmentation = augmentation, .place = order.place(step, position)};
    std::int32_t label = 0;
    dataset.view(order.sample(step, position), draw, pixels.empty() ? pixels : pixels.subspan(row * floats, floats),
                 label);
    if (!labels.empty()) labels[row] = label;
  }
}

}  // namespace strata::data
