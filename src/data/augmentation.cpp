#include "data/augmentation.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/random.hpp"

namespace strata::data {
namespace {

/// Rectangle of whole pixels.
struct Rectangle {
  std::int64_t top = 0, left = 0, height = 0, width = 0;
};

/// Uniform in [0, count), count < 2³².
std::int64_t below(std::uint32_t word, std::int64_t count) {
  return static_cast<std::int64_t>(std::uint64_t{word} * static_cast<std::uint64_t>(count) >> 32U);
}

/// Halves to even, as Python rounds.
std::int64_t rounded(double value) { return std::llrint(value); }

/// RandomResizedCrop.get_params. @param random words from 4 on, four a try.
Rectangle resized_crop(const RandomStream& random, const Extent& stored) {
  constexpr double least_area = 0.08, least_aspect = 3.0 / 4.0, most_aspect = 4.0 / 3.0;
  constexpr std::uint64_t num_tries = 10;
  const auto height = static_cast<double>(stored.height), width = static_cast<double>(stored.width);
  for (std::uint64_t first = 4; first < 4 + 4 * num_tries; first += 4) {
    const double area = height * width * (least_area + (1.0 - least_area) * double{random.uniform(first)});
    const double low = std::log(least_aspect), high = std::log(most_aspect);
    const double aspect = std::exp(low + (high - low) * double{random.uniform(first + 1)});
    const std::int64_t w = rounded(std::sqrt(area * aspect)), h = rounded(std::sqrt(area / aspect));
    if (w < 1 || h < 1 || w > stored.width || h > stored.height) continue;
    return {.top = below(random.word(first + 2), stored.height - h + 1),
            .left = below(random.word(first + 3), stored.width - w + 1),
            .height = h,
            .width = w};
  }
  Rectangle middle{.height = stored.height, .width = stored.width};
  if (width / height < least_aspect) middle.height = std::max<std::int64_t>(1, rounded(width / least_aspect));
  if (width / height > most_aspect) middle.width = std::max<std::int64_t>(1, rounded(height * most_aspect));
  middle.top = (stored.height - middle.height) / 2;
  middle.left = (stored.width - middle.width) / 2;
  return middle;
}

}  // namespace

Augmentation parse_augmentation(std::span<const std::string> words, std::uint64_t seed) {
  Augmentation result{.seed = seed};
  for (const std::string& word : words) {
    if (word == "crop") {
      result.crop = true;
    } else if (word == "resized_crop") {
      result.resized_crop = true;
    } else if (word == "flip") {
      result.flip = true;
    } else {
      throw UserError(fmt::format("unknown augmentation \"{}\"; accepted: crop, resized_crop, flip", word));
    }
  }
  return result;
}

ImageView view_of(const ViewDraw& draw, const Extent& stored, std::int64_t image_size, std::int64_t shorter_side) {
  STRATA_INVARIANT(
      stored.height > 0 && stored.width > 0 && image_size > 0 && shorter_side >= image_size,
      fmt::format("{} × {} pixels resized to {} for {}", stored.height, stored.width, shorter_side, image_size));
  const Augmentation& how = draw.augmentation;
  const RandomStream random{how.seed ^ stream_of("data.augmentation"), static_cast<std::uint64_t>(draw.place)};
  ImageView view{.is_mirrored = how.flip && (random.word(0) >> 31U) != 0};
  if (how.resized_crop) {
    const Rectangle cut = resized_crop(random, stored);
    view.top = static_cast<double>(cut.top);
    view.left = static_cast<double>(cut.left);
    view.height = static_cast<double>(cut.height);
    view.width = static_cast<double>(cut.width);
    view.row_begin = cut.top;
    view.row_end = cut.top + cut.height;
    view.column_begin = cut.left;
    view.column_end = cut.left + cut.width;
    return view;
  }
  const std::int64_t shorter = std::min(stored.height, stored.width);
  const Extent resized{shorter_side * stored.height / shorter, shorter_side * stored.width / shorter};
  const auto offset = [&](std::int64_t side, std::uint32_t word) {
    constexpr std::int64_t padding = 4;
    if (how.crop) return below(word, side + 2 * padding - image_size + 1) - padding;
    return rounded(static_cast<double>(side - image_size) / 2.0);
  };
  const double rows = static_cast<double>(stored.height) / static_cast<double>(resized.height);
  const double columns = static_cast<double>(stored.width) / static_cast<double>(resized.width);
  view.top = rows * static_cast<double>(offset(resized.height, random.word(1)));
  view.left = columns * static_cast<double>(offset(resized.width, random.word(2)));
  view.height = rows * static_cast<double>(image_size);
  view.width = columns * static_cast<double>(image_size);
  view.row_end = stored.height;
  view.column_end = stored.width;
  return view;
}

}  // namespace strata::data
