/// @file
/// Records of planar bytes become channels-last floats here, and a dataset of floats is written as such records.

#include "data/cifar10.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <system_error>
#include <utility>

#include "base/error.hpp"

namespace strata::data {
namespace {

constexpr auto num_pixels = static_cast<std::size_t>(cifar10_image_size * cifar10_image_size);

}  // namespace

Cifar10::Cifar10(std::vector<MappedFile> files, std::int64_t num_classes, const Normalisation& normalisation)
    : files_(std::move(files)), first_record_{0}, num_classes_(num_classes), normalisation_(normalisation) {
  STRATA_INVARIANT(!files_.empty(), "no CIFAR-10 file");
  for (const MappedFile& file : files_) {
    if (file.size_bytes() % cifar10_record_bytes != 0) {
      throw UserError(
          fmt::format("CIFAR-10 file {} has {} bytes, which is no multiple of its records of {} bytes (1 label, 3 × 32 "
                      "× 32 pixels)",
                      file.path(), file.size_bytes(), cifar10_record_bytes));
    }
    first_record_.push_back(first_record_.back() + file.size_bytes() / cifar10_record_bytes);
  }
}

void Cifar10::view(std::int64_t sample, const ViewDraw& draw, std::span<float> nhwc_pixels, std::int32_t& label) const {
  STRATA_INVARIANT(sample >= 0 && sample < num_samples(), fmt::format("sample {} of {}", sample, num_samples()));
  STRATA_INVARIANT(nhwc_pixels.empty() || nhwc_pixels.size() == 3 * num_pixels,
                   fmt::format("span of {} floats", nhwc_pixels.size()));
  const auto after = std::upper_bound(first_record_.begin(), first_record_.end(), sample);
  const auto index = static_cast<std::size_t>(after - first_record_.begin()) - 1;
  const std::int64_t record = sample - first_record_[index];
  const std::uint8_t* bytes = files_[index].bytes().data() + record * cifar10_record_bytes;
  if (bytes[0] >= cifar10_num_classes) {
    throw UserError(fmt::format("CIFAR-10 file {}: record {} has label {}; labels are 0 to {}", files_[index].path(),
                                record, bytes[0], cifar10_num_classes - 1));
  }
  label = bytes[0];
  if (nhwc_pixels.empty()) return;
  std::array<std::uint8_t, 3 * num_pixels> stored{};
  for (std::size_t channel = 0; channel < 3; ++channel) {
    const std::uint8_t* plane = bytes + 1 + channel * num_pixels;
    for (std::size_t pixel = 0; pixel < num_pixels; ++pixel) stored[3 * pixel + channel] = plane[pixel];
  }
  constexpr Extent extent{.height = cifar10_image_size, .width = cifar10_image_size};
  resample(stored, extent, view_of(draw, extent, cifar10_image_size, cifar10_image_size), normalisation_,
           cifar10_image_size, nhwc_pixels);
}

Provenance Cifar10::describe() const {
  Provenance provenance{.format = Format::cifar10, .num_samples = num_samples()};
  for (const MappedFile& file : files_) {
    provenance.files.push_back({file.path(), file.size_bytes(), sampled_checksum(file)});
  }
  provenance.detail = "32 × 32 pixels, 10 classes";
  return provenance;
}

void write_cifar10(const std::string& path, const ImageDataset& dataset, std::int64_t num_images) {
  if (dataset.image_size() != cifar10_image_size || dataset.num_classes() > cifar10_num_classes) {
    throw UserError(
        fmt::format("cannot write {} as CIFAR-10: images of {} pixels and {} classes, not 32 and at most 10", path,
                    dataset.image_size(), dataset.num_classes()));
  }
  std::ofstream stream(path, std::ios::binary | std::ios::trunc);
  std::vector<float> pixels(3 * num_pixels);
  std::vector<std::uint8_t> record(static_cast<std::size_t>(cifar10_record_bytes));
  for (std::int64_t sample = 0; sample < num_images && stream; ++sample) {
    std::int32_t label = 0;
    dataset.image(sample, pixels, label);
    record[0] = static_cast<std::uint8_t>(label);
    for (std::size_t channel = 0; channel < 3; ++channel) {
      for (std::size_t pixel = 0; pixel < num_pixels; ++pixel) {
        const float fraction = pixels[3 * pixel + channel] * cifar10_deviation[channel] + cifar10_mean[channel];
        record[1 + channel * num_pixels + pixel] =
            static_cast<std::uint8_t>(std::lround(std::clamp(255.0F * fraction, 0.0F, 255.0F)));
      }
    }
    stream.write(reinterpret_cast<const char*>(record.data()), static_cast<std::streamsize>(record.size()));
  }
  stream.close();
  if (!stream) {
    throw UserError(fmt::format("cannot write {}: {}", path, std::generic_category().message(errno)));
  }
}

}  // namespace strata::data
