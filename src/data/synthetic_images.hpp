#pragma once

/// @file
/// Generated images that can be learnt: each class has a pattern of 8 × 8 cells a channel, every cell +1 or −1,
/// stretched over the image; a sample is half of its class's pattern plus noise, unit variance in all. No pixel alone
/// says the class, the pattern does. All randomness is Philox words by sample and pixel, so equal seeds give equal
/// images everywhere.

#include <cstdint>
#include <span>

#include "data/dataset.hpp"

namespace strata::data {

class SyntheticImages final : public ImageDataset {
 public:
  SyntheticImages(std::int64_t num_samples, std::int64_t image_size, std::int64_t num_classes, std::uint64_t seed);

  std::int64_t num_samples() const override { return num_samples_; }
  std::int64_t image_size() const override { return image_size_; }
  std::int64_t num_classes() const override { return num_classes_; }
  void view(std::int64_t sample, const ViewDraw& draw, std::span<float> nhwc_pixels,
            std::int32_t& label) const override;
  Provenance describe() const override;

 private:
  void generate(std::int64_t sample, std::span<float> nhwc_pixels, std::int32_t& label) const;

  std::int64_t num_samples_;
  std::int64_t image_size_;
  std::int64_t num_classes_;
  std::uint64_t seed_;
};

}  // namespace strata::data
