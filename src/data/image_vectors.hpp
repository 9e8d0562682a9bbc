#pragma once

/// @file
/// Images for models whose input is a vector: the first values of each image, row by row, channel fastest.

#include <memory>
#include <span>

#include "data/dataset.hpp"

namespace strata::data {

/// Side of the smallest square image of 3 channels that has @p num_values values.
std::int64_t image_size_of(std::int64_t num_values);

class ImageVectors final : public ImageDataset {
 public:
  /// @param images of at least @p num_values values each.
  ImageVectors(std::unique_ptr<ImageDataset> images, std::int64_t num_values);

  std::int64_t num_samples() const override { return images_->num_samples(); }
  std::int64_t image_size() const override { return images_->image_size(); }
  std::int64_t values_per_sample() const override { return num_values_; }
  std::int64_t num_classes() const override { return images_->num_classes(); }
  void view(std::int64_t sample, const ViewDraw& draw, std::span<float> values, std::int32_t& label) const override;
  Provenance describe() const override;

 private:
  std::unique_ptr<ImageDataset> images_;
  std::int64_t num_values_;
};

}  // namespace strata::data
