#pragma once

/// @file
/// Which part of a stored image a sample shows: all of it but what does not fit a square, or, in training, one that is
/// drawn. What is drawn is a function of the seed and of the sample's place along the endless sequence of epochs, so
/// that each epoch sees another view and neither ranks nor threads nor a restart change one.
/// Definitions: torchvision 0.15, transforms Resize, CenterCrop, RandomCrop, RandomResizedCrop, RandomHorizontalFlip.

#include <cstdint>
#include <span>
#include <string>

namespace strata::data {

/// How training varies its images. At most one of the crops.
struct Augmentation {
  bool crop = false;          ///< a square of the image's size, anywhere in the image with 4 black pixels around it
  bool resized_crop = false;  ///< 8 to 100 % of the area at an aspect of 3/4 to 4/3, anywhere, stretched to the square
  bool flip = false;          ///< mirrored, every other time
  std::uint64_t seed = 1;
  bool varies() const { return crop || resized_crop || flip; }
  bool operator==(const Augmentation&) const = default;
};

/// @param words of data.augment: crop, resized_crop, flip. @throws UserError for others.
Augmentation parse_augmentation(std::span<const std::string> words, std::uint64_t seed);

/// Of one sample.
struct ViewDraw {
  Augmentation augmentation;
  std::int64_t place = 0;  ///< see Order::place
};

struct Extent {
  std::int64_t height = 0;
  std::int64_t width = 0;
  bool operator==(const Extent&) const = default;
};

/// A rectangle in pixels of a stored image, stretched over the square that a model reads.
struct ImageView {
  double top = 0.0, left = 0.0, height = 0.0, width = 0.0;  ///< what is outside the image is black
  /// Pixels that the resampling filter may take, [begin, end): of the rectangle alone, where it was cut out first.
  std::int64_t row_begin = 0, row_end = 0, column_begin = 0, column_end = 0;
  bool is_mirrored = false;
  bool operator==(const ImageView&) const = default;
};

/// Of a stored image of @p stored pixels, for a model that reads @p image_size pixels a side. But for resized_crop the
/// image is thought of as resized until its shorter side has @p shorter_side pixels, at least @p image_size; then the
/// square is taken from its middle, or by crop from anywhere.
ImageView view_of(const ViewDraw& draw, const Extent& stored, std::int64_t image_size, std::int64_t shorter_side);

}  // namespace strata::data
