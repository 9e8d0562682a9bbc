/// @file
/// JPEG and PNG files.

#include <cmath>
#include <vector>

#include "data/decode_image.hpp"
#include "data/resample.hpp"
#include "fuzz/fuzz_target.hpp"

namespace strata::fuzz::image_file {

STRATA_FUZZ_TARGET(image) {
  Choices choices(bytes);
  const data::ViewDraw draw{.augmentation = {.resized_crop = choices.of(2) == 1, .flip = true},
                            .place = choices.of(100)};
  const Bytes file = choices.rest();
  data::DecodedImage image;
  const auto is_read = unless_refused("image here", [&] {
    data::decode_image("here", file, image);
    return true;
  });
  if (!is_read) return;
  const auto [height, width] = image.extent;
  require(height > 0 && width > 0 && std::ssize(image.rgb) == 3 * height * width, "an image of another size");
  constexpr std::int64_t size = 5;
  std::vector<float> seen(3 * size * size);
  resample(image.rgb, image.extent, view_of(draw, image.extent, size, size), {}, size, seen);
  for (const float value : seen) require(value >= 0.0F && value < 255.01F, "a value that no pixel has");
}

}  // namespace strata::fuzz::image_file
