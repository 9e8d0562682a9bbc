#include "data/resample.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "base/error.hpp"

namespace strata::data {
namespace {

constexpr std::size_t num_channels = 3;

/// The pixels that one output row or column is made of, and their weights' place.
struct Taps {
  std::size_t first = 0;
  std::size_t count = 0;
  std::size_t weights_at = 0;
};

/// Of all rows, or of all columns.
struct Filter {
  std::vector<Taps> taps;
  std::vector<float> weights;

  /// @param begin, length what is stretched over @p num_outputs; @param from, to pixels that there are.
  void make(double begin, double length, std::int64_t num_outputs, std::int64_t from, std::int64_t to) {
    taps.clear();
    weights.clear();
    const double scale = length / static_cast<double>(num_outputs);
    const double reach = std::max(scale, 1.0);
    for (std::int64_t i = 0; i < num_outputs; ++i) {
      const double centre = begin + (static_cast<double>(i) + 0.5) * scale;
      const auto first = std::max(static_cast<std::int64_t>(std::floor(centre - reach + 0.5)), from);
      const auto last = std::min(static_cast<std::int64_t>(std::floor(centre + reach + 0.5)), to);
      const auto weight = [&](std::int64_t k) {
        return std::max(0.0, 1.0 - std::abs(static_cast<double>(k) + 0.5 - centre) / reach);
      };
      double sum = 0.0;
      for (std::int64_t k = first; k < last; ++k) sum += weight(k);
      if (sum == 0.0) {  // outside the image
        taps.push_back({});
        continue;
      }
      taps.push_back({static_cast<std::size_t>(first), static_cast<std::size_t>(last - first), weights.size()});
      for (std::int64_t k = first; k < last; ++k) weights.push_back(static_cast<float>(weight(k) / sum));
    }
  }
};

template <typename Value>
void resample_image(std::span<const Value> pixels, const Extent& stored, const ImageView& view,
                    const Normalisation& normalisation, std::int64_t image_size, std::span<float> out) {
  const auto size = static_cast<std::size_t>(image_size), stored_width = static_cast<std::size_t>(stored.width);
  STRATA_INVARIANT(pixels.size() == static_cast<std::size_t>(stored.height) * stored_width * num_channels &&
                       out.size() == size * size * num_channels,
                   fmt::format("{} values of {} × {} pixels, {} of {}", pixels.size(), stored.height, stored.width,
                               out.size(), image_size));
  struct Scratch {
    Filter rows, columns;
    std::vector<float> narrow;  // the rows that are needed, as wide as the output
  };
  thread_local Scratch of_thread;
  auto& [rows, columns, narrow] = of_thread;
  rows.make(view.top, view.height, image_size, view.row_begin, view.row_end);
  columns.make(view.left, view.width, image_size, view.column_begin, view.column_end);
  std::size_t begin = static_cast<std::size_t>(stored.height), end = 0;
  for (const Taps& taps : rows.taps) {
    if (taps.count == 0) continue;
    begin = std::min(begin, taps.first);
    end = std::max(end, taps.first + taps.count);
  }
  const std::size_t width = size * num_channels;
  narrow.resize(end > begin ? (end - begin) * width : 0);
  for (std::size_t row = begin; row < end; ++row) {
    const Value* from = pixels.data() + row * stored_width * num_channels;
    for (std::size_t x = 0; x < size; ++x) {
      const Taps& taps = columns.taps[view.is_mirrored ? size - 1 - x : x];
      std::array<float, num_channels> sum{};
      for (std::size_t k = 0; k < taps.count; ++k) {
        const float weight = columns.weights[taps.weights_at + k];
        for (std::size_t c = 0; c < num_channels; ++c) {
          sum[c] += weight * static_cast<float>(from[(taps.first + k) * num_channels + c]);
        }
      }
      std::ranges::copy(sum, narrow.begin() + static_cast<std::ptrdiff_t>((row - begin) * width + x * num_channels));
    }
  }
  for (std::size_t y = 0; y < size; ++y) {
    const Taps& taps = rows.taps[y];
    const std::span<float> to = out.subspan(y * width, width);
    std::ranges::fill(to, 0.0F);
    for (std::size_t k = 0; k < taps.count; ++k) {
      const float weight = rows.weights[taps.weights_at + k];
      const float* from = narrow.data() + (taps.first + k - begin) * width;
      for (std::size_t i = 0; i < width; ++i) to[i] += weight * from[i];
    }
    for (std::size_t i = 0; i < width; i += num_channels) {
      for (std::size_t c = 0; c < num_channels; ++c) {
        to[i + c] = to[i + c] * normalisation.scale[c] + normalisation.shift[c];
      }
    }
  }
}

}  // namespace

Normalisation normalisation_of(const std::array<float, 3>& mean, const std::array<float, 3>& deviation) {
  Normalisation result;
  for (std::size_t c = 0; c < num_channels; ++c) {
    result.scale[c] = 1.0F / (255.0F * deviation[c]);
    result.shift[c] = -mean[c] / deviation[c];
  }
  return result;
}

void resample(std::span<const std::uint8_t> pixels, const Extent& stored, const ImageView& view,
              const Normalisation& normalisation, std::int64_t image_size, std::span<float> out) {
  resample_image(pixels, stored, view, normalisation, image_size, out);
}

void resample(std::span<const float> pixels, const Extent& stored, const ImageView& view,
              const Normalisation& normalisation, std::int64_t image_size, std::span<float> out) {
  resample_image(pixels, stored, view, normalisation, image_size, out);
}

}  // namespace strata::data
