/// @file
/// CIFAR-10's binary files. The first byte says whether the model reads images or vectors.

#include <cmath>
#include <vector>

#include "data/cifar10.hpp"
#include "data/dataset.hpp"
#include "fuzz/fuzz_target.hpp"

namespace strata::fuzz::cifar_file {

STRATA_FUZZ_TARGET(cifar) {
  Choices choices(bytes);
  const int choice = choices.of(4);
  const FileInMemory file(choices.rest());
  const data::ImageOptions options{.format = choice % 2 == 0 ? data::Format::automatic : data::Format::cifar10,
                                   .paths = {file.path()},
                                   .vector_values = choice / 2 == 0 ? 0 : 3072,
                                   .num_classes = 10};
  const auto dataset = unless_refused(file.path(), [&] { return make_image_dataset(options); });
  if (!dataset) return;
  const data::ImageDataset& images = **dataset;
  require(images.num_samples() >= 1 && images.describe().num_samples == images.num_samples(), "an epoch of nothing");
  std::vector<float> pixels(static_cast<std::size_t>(images.values_per_sample()));
  for (std::int64_t sample = 0; sample < images.num_samples(); ++sample) {
    std::int32_t label = -1;
    const auto is_read = unless_refused(file.path(), [&] {
      images.image(sample, pixels, label);
      return true;
    });
    if (!is_read) continue;
    require(label >= 0 && label < options.num_classes, "a label that is none");
    for (const float pixel : pixels) require(std::abs(pixel) < 10.0F, "a pixel far from the others");
  }
}

}  // namespace strata::fuzz::cifar_file
