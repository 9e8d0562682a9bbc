#include "data/image_vectors.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace strata::data {

std::int64_t image_size_of(std::int64_t num_values) {
  std::int64_t size = 1;
  while (size * size * ImageDataset::num_channels < num_values) ++size;
  return size;
}

ImageVectors::ImageVectors(std::unique_ptr<ImageDataset> images, std::int64_t num_values)
    : images_(std::move(images)), num_values_(num_values) {
  STRATA_INVARIANT(num_values_ <= images_->values_per_sample(),
                   fmt::format("{} values of images of {}", num_values_, images_->values_per_sample()));
}

void ImageVectors::view(std::int64_t sample, const ViewDraw& draw, std::span<float> values, std::int32_t& label) const {
  if (values.empty() || num_values_ == images_->values_per_sample()) {
    images_->view(sample, draw, values, label);
    return;
  }
  thread_local std::vector<float> whole;  // reading allocates once a thread
  whole.resize(static_cast<std::size_t>(images_->values_per_sample()));
  images_->view(sample, draw, whole, label);
  std::copy_n(whole.begin(), values.size(), values.begin());
}

Provenance ImageVectors::describe() const {
  Provenance provenance = images_->describe();
  provenance.detail += fmt::format(", {} values of each", num_values_);
  return provenance;
}

}  // namespace strata::data
