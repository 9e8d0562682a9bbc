#pragma once

/// @file
/// A view of a stored image as the floats that a model reads: bilinear, and where the image shrinks each pixel is the
/// mean over all that it covers, weighted by a triangle (antialiasing). The weights are Pillow's (Resample.c, filter
/// BILINEAR), so that models trained by others see what they are used to; Pillow rounds to bytes after each of the two
/// directions, this does not. Ours, because Debian's stb_image_resize repeats what is at the edge, where Pillow leaves
/// out what is not there, and its successors have another interface.

#include <array>
#include <cstdint>
#include <span>

#include "data/augmentation.hpp"

namespace strata::data {

/// Of a pixel's value x, by channel: x · scale + shift.
struct Normalisation {
  std::array<float, 3> scale = {1.0F, 1.0F, 1.0F};
  std::array<float, 3> shift = {0.0F, 0.0F, 0.0F};
};

/// Bytes to zero mean and unit deviation. @param mean, deviation by channel, as fractions of 255.
Normalisation normalisation_of(const std::array<float, 3>& mean, const std::array<float, 3>& deviation);

/// @param pixels of the stored image, row by row, channel fastest; 3 channels.
/// @param out [image_size, image_size, 3], likewise. Black is the value 0. Allocates once a thread.
void resample(std::span<const std::uint8_t> pixels, const Extent& stored, const ImageView& view,
              const Normalisation& normalisation, std::int64_t image_size, std::span<float> out);
void resample(std::span<const float> pixels, const Extent& stored, const ImageView& view,
              const Normalisation& normalisation, std::int64_t image_size, std::span<float> out);

}  // namespace strata::data
