#pragma once

/// @file
/// JPEG by libjpeg-turbo and PNG by libpng, told apart by their first bytes, not by their names: ImageNet has a PNG
/// that is called JPEG.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/augmentation.hpp"

namespace strata::data {

/// Three bytes a pixel, row by row: red, green, blue.
struct DecodedImage {
  Extent extent;
  std::vector<std::uint8_t> rgb;
};

/// Grey becomes three equal channels, CMYK is taken to be Adobe's, inverted one; transparency and a camera's
/// orientation are ignored, all as torchvision's loader does.
/// @param path for messages. @param image is overwritten; what it has allocated is used again.
/// @throws UserError with path and reason: neither of the two, anything that a library warns of for JPEG (it would make
/// up what is missing) or fails at for PNG, more than 2²⁷ pixels.
void decode_image(const std::string& path, std::span<const std::uint8_t> bytes, DecodedImage& image);

}  // namespace strata::data
