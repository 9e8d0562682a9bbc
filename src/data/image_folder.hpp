#pragma once

/// @file
/// A folder with a folder of JPEG and PNG files for each class, as ImageNet is unpacked. Classes are numbered in the
/// order of their folders' names, samples by class and then by name, both by bytes. Only names are read when the folder
/// is opened; an image is read and decoded each time it is asked for.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/dataset.hpp"
#include "data/resample.hpp"

namespace strata::data {

/// Of ImageNet's training images, as fractions of 255; red, green, blue.
inline constexpr std::array<float, 3> imagenet_mean = {0.485F, 0.456F, 0.406F};
inline constexpr std::array<float, 3> imagenet_deviation = {0.229F, 0.224F, 0.225F};

class ImageFolder final : public ImageDataset {
 public:
  struct Shape {
    std::int64_t image_size = 0;    ///< what the model reads, pixels a side
    std::int64_t shorter_side = 0;  ///< see view_of(); at least image_size
    std::int64_t num_classes = 0;   ///< the model's
  };
  /// @throws UserError naming the folder: none, without folders, with another number of them than classes, with a class
  /// that holds no image or a further folder.
  ImageFolder(std::string path, const Shape& shape, const Normalisation& normalisation);

  std::int64_t num_samples() const override { return first_sample_.back(); }
  std::int64_t image_size() const override { return shape_.image_size; }
  std::int64_t num_classes() const override { return shape_.num_classes; }
  /// @throws UserError naming a file that cannot be read or decoded, with the reason.
  void view(std::int64_t sample, const ViewDraw& draw, std::span<float> nhwc_pixels,
            std::int32_t& label) const override;
  /// Looks into 64 files at most, spread evenly: their bytes and one checksum of their names and contents stand for
  /// all.
  Provenance describe() const override;

 private:
  void list_class(const std::string& name);
  std::size_t class_of(std::int64_t sample) const;
  std::string path_of(std::int64_t sample) const;

  std::string path_;
  Shape shape_;
  Normalisation normalisation_;
  std::vector<std::string> classes_;
  std::vector<std::int64_t> first_sample_{0};  // of each class, then their number
  std::string names_;                          // of all files, one behind the other: a million strings would be large
  std::vector<std::size_t> name_ends_;
  std::int64_t num_others_ = 0;  // files that are no images
};

}  // namespace strata::data
