#pragma once

/// @file
/// CIFAR-10's binary version: files of records, each 1 label byte and 32 × 32 × 3 pixel bytes, planar (all red, all
/// green, all blue), rows top down. Pixels are normalised with the training set's own mean and deviation a channel,
/// where nothing else is asked for. Format: https://www.cs.toronto.edu/~kriz/cifar.html.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/dataset.hpp"
#include "data/mapped_file.hpp"
#include "data/resample.hpp"

namespace strata::data {

inline constexpr std::int64_t cifar10_image_size = 32;
inline constexpr std::int64_t cifar10_num_classes = 10;
inline constexpr std::int64_t cifar10_record_bytes = 1 + 3 * cifar10_image_size * cifar10_image_size;

/// Of the 50,000 training images, as fractions of 255; red, green, blue.
inline constexpr std::array<float, 3> cifar10_mean = {0.4914F, 0.4822F, 0.4465F};
inline constexpr std::array<float, 3> cifar10_deviation = {0.2470F, 0.2435F, 0.2616F};

class Cifar10 final : public ImageDataset {
 public:
  /// `num_classes` is the model's, at least 10.
  /// @param normalisation what pixels become; see cifar10_mean.
  /// @throws UserError for a file whose size is no multiple of a record's.
  Cifar10(std::vector<MappedFile> files, std::int64_t num_classes, const Normalisation& normalisation);

  std::int64_t num_samples() const override { return first_record_.back(); }
  std::int64_t image_size() const override { return cifar10_image_size; }
  std::int64_t num_classes() const override { return num_classes_; }
  void view(std::int64_t sample, const ViewDraw& draw, std::span<float> nhwc_pixels,
            std::int32_t& label) const override;
  Provenance describe() const override;

 private:
  std::vector<MappedFile> files_;
  std::vector<std::int64_t> first_record_;  // of each file, then their number
  std::int64_t num_classes_;
  Normalisation normalisation_;
};

/// Writes samples [0, num_images) of a 32-pixel dataset of at most 10 classes as one CIFAR-10 file. Pixels are rounded
/// to bytes and clipped to [0, 255]; images that came from such a file are written back byte for byte.
/// @throws UserError when the dataset does not fit the format or the file cannot be written.
void write_cifar10(const std::string& path, const ImageDataset& dataset, std::int64_t num_images);

}  // namespace strata::data
