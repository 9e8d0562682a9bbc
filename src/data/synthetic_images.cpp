/// @file
/// Noise first, in counter order, then the class's pattern on top.

#include "data/synthetic_images.hpp"

#include <fmt/core.h>

#include <array>
#include <cmath>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"
#include "data/resample.hpp"

namespace strata::data {
namespace {

constexpr std::int64_t cells_per_side = 8;
constexpr float pattern_amplitude = 0.5F;

/// 8 × 8 × 3 signs as bits: channel c is words 2c and 2c + 1, row-major.
using Pattern = std::array<std::uint32_t, 6>;

Pattern pattern_of(std::int32_t label, std::uint64_t seed) {
  const RandomStream stream{seed ^ stream_of("data.synthetic.patterns"), static_cast<std::uint64_t>(label)};
  Pattern pattern{};
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    pattern[i] = stream.word(i);
  }
  return pattern;
}

float sign_at(const Pattern& pattern, std::int64_t cell, std::size_t channel) {
  const std::uint32_t word = pattern[2 * channel + static_cast<std::size_t>(cell / 32)];
  return (word >> (cell % 32) & 1U) != 0 ? 1.0F : -1.0F;
}

/// The sum of a word's four bytes, centred: nearly normal, exact in integers, no logarithm or cosine a pixel.
/// Mean 0, variance 4·(256² − 1)/12, in [−510, 510].
float byte_sum(std::uint32_t word) {
  const std::uint32_t sum = (word & 0xffU) + (word >> 8U & 0xffU) + (word >> 16U & 0xffU) + (word >> 24U);
  return static_cast<float>(sum) - 510.0F;
}

}  // namespace

SyntheticImages::SyntheticImages(std::int64_t num_samples, std::int64_t image_size, std::int64_t num_classes,
                                 std::uint64_t seed)
    : num_samples_(num_samples), image_size_(image_size), num_classes_(num_classes), seed_(seed) {}

void SyntheticImages::view(std::int64_t sample, const ViewDraw& draw, std::span<float> nhwc_pixels,
                           std::int32_t& label) const {
  if (nhwc_pixels.empty() || !draw.augmentation.varies()) {
    generate(sample, nhwc_pixels, label);
    return;
  }
  thread_local std::vector<float> whole;  // reading allocates once a thread
  whole.resize(nhwc_pixels.size());
  generate(sample, whole, label);
  const Extent extent{.height = image_size_, .width = image_size_};
  resample(whole, extent, view_of(draw, extent, image_size_, image_size_), {}, image_size_, nhwc_pixels);
}

void SyntheticImages::generate(std::int64_t sample, std::span<float> nhwc_pixels, std::int32_t& label) const {
  STRATA_INVARIANT(sample >= 0 && sample < num_samples_, fmt::format("sample {} of {}", sample, num_samples_));
  STRATA_INVARIANT(nhwc_pixels.empty() || std::ssize(nhwc_pixels) == image_size_ * image_size_ * num_channels,
                   fmt::format("span of {} floats for {} pixels a side", nhwc_pixels.size(), image_size_));
  // Block 0 of a sample's words gives the label, block 1 + k the noise of floats 4k to 4k + 3.
  const RandomStream random{seed_ ^ stream_of("data.synthetic.images"), static_cast<std::uint64_t>(sample)};
  label = static_cast<std::int32_t>(std::uint64_t{random.word(0)} * static_cast<std::uint64_t>(num_classes_) >> 32U);
  if (nhwc_pixels.empty()) return;

  const float noise_scale =
      std::sqrt(1.0F - pattern_amplitude * pattern_amplitude) / std::sqrt(4.0F * (256.0F * 256.0F - 1.0F) / 12.0F);
  const std::size_t in_blocks = nhwc_pixels.size() / 4 * 4;
  for (std::size_t i = 0; i < in_blocks; i += 4) {
    const std::array<std::uint32_t, 4> words = random.block(1 + i / 4);
    for (std::size_t w = 0; w < 4; ++w) nhwc_pixels[i + w] = noise_scale * byte_sum(words[w]);
  }
  for (std::size_t i = in_blocks; i < nhwc_pixels.size(); ++i) {
    nhwc_pixels[i] = noise_scale * byte_sum(random.word(4 + i));
  }

  // Rows of one cell row have one pattern.
  const Pattern pattern = pattern_of(label, seed_);
  const auto row_floats = static_cast<std::size_t>(image_size_) * num_channels;
  thread_local std::vector<float> signs;  // reading allocates once a thread
  signs.resize(row_floats);
  std::int64_t cell_row_of_signs = -1;
  for (std::int64_t row = 0; row < image_size_; ++row) {
    const std::int64_t cell_row = row * cells_per_side / image_size_;
    if (cell_row != cell_row_of_signs) {
      for (std::int64_t column = 0; column < image_size_; ++column) {
        const std::int64_t cell = cell_row * cells_per_side + column * cells_per_side / image_size_;
        for (std::size_t channel = 0; channel < num_channels; ++channel) {
          signs[static_cast<std::size_t>(column) * num_channels + channel] =
              pattern_amplitude * sign_at(pattern, cell, channel);
        }
      }
      cell_row_of_signs = cell_row;
    }
    float* const line = nhwc_pixels.data() + static_cast<std::size_t>(row) * row_floats;
    for (std::size_t i = 0; i < row_floats; ++i) line[i] += signs[i];
  }
}

Provenance SyntheticImages::describe() const {
  return {.format = Format::synthetic,

          .num_samples = num_samples_,
          .detail = fmt::format("patterns of seed {}, {} × {} pixels, {} classes", seed_, image_size_, image_size_,
                                num_classes_)};
}

}  // namespace strata::data
