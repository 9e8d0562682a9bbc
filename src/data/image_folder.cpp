#include "data/image_folder.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "base/random.hpp"
#include "data/decode_image.hpp"
#include "data/mapped_file.hpp"

namespace strata::data {
namespace {

namespace fs = std::filesystem;

/// Names of folders and of others, sorted by bytes.
struct Listing {
  std::vector<std::string> folders, files;
};

Listing list_folder(const std::string& path) {
  Listing listing;
  std::error_code error;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    const bool is_folder = at->is_directory(error);
    if (error) break;
    (is_folder ? listing.folders : listing.files).push_back(at->path().filename().string());
  }
  if (error) throw UserError(fmt::format("cannot list folder {} of data.paths: {}", path, error.message()));
  std::ranges::sort(listing.folders);
  std::ranges::sort(listing.files);
  return listing;
}

bool is_image(const std::string& name) {
  std::string extension = fs::path(name).extension().string();
  std::ranges::transform(extension, extension.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return extension == ".jpg" || extension == ".jpeg" || extension == ".png";
}

}  // namespace

ImageFolder::ImageFolder(std::string path, const Shape& shape, const Normalisation& normalisation)
    : path_(std::move(path)), shape_(shape), normalisation_(normalisation) {
  Listing listing = list_folder(path_);
  if (listing.folders.empty()) {
    throw UserError(fmt::format("folder {} has {} files and no folder; accepted: a folder of images for each class",
                                path_, listing.files.size()));
  }
  classes_ = std::move(listing.folders);
  num_others_ = std::ssize(listing.files);
  if (std::ssize(classes_) != shape_.num_classes) {
    throw UserError(fmt::format("folder {} has {} folders, from {} to {}, each a class, but model.num_classes = {}",
                                path_, classes_.size(), classes_.front(), classes_.back(), shape_.num_classes));
  }
  for (const std::string& name : classes_) list_class(name);
}

void ImageFolder::list_class(const std::string& name) {
  const std::string path = path_ + "/" + name;
  const Listing listing = list_folder(path);
  if (!listing.folders.empty()) {
    throw UserError(fmt::format("class folder {} holds the folder {}; accepted: files", path, listing.folders.front()));
  }
  for (const std::string& file : listing.files) {
    if (!is_image(file)) continue;
    names_ += file;
    name_ends_.push_back(names_.size());
  }
  const std::int64_t num_images = std::ssize(name_ends_) - first_sample_.back();
  if (num_images == 0) {
    throw UserError(fmt::format("class folder {} has no image among its {} files; accepted: .jpg, .jpeg, .png", path,
                                listing.files.size()));
  }
  num_others_ += std::ssize(listing.files) - num_images;
  first_sample_.push_back(std::ssize(name_ends_));
}

std::size_t ImageFolder::class_of(std::int64_t sample) const {
  return static_cast<std::size_t>(std::ranges::upper_bound(first_sample_, sample) - first_sample_.begin()) - 1;
}

std::string ImageFolder::path_of(std::int64_t sample) const {
  const auto index = static_cast<std::size_t>(sample);
  const std::size_t begin = index == 0 ? 0 : name_ends_[index - 1];
  return fmt::format("{}/{}/{}", path_, classes_[class_of(sample)],
                     std::string_view(names_).substr(begin, name_ends_[index] - begin));
}

void ImageFolder::view(std::int64_t sample, const ViewDraw& draw, std::span<float> nhwc_pixels,
                       std::int32_t& label) const {
  STRATA_INVARIANT(sample >= 0 && sample < num_samples(), fmt::format("sample {} of {}", sample, num_samples()));
  label = static_cast<std::int32_t>(class_of(sample));
  if (nhwc_pixels.empty()) return;
  thread_local DecodedImage image;  // reading allocates for the largest image so far
  const MappedFile file(path_of(sample));
  decode_image(file.path(), file.bytes(), image);
  resample(image.rgb, image.extent, view_of(draw, image.extent, shape_.image_size, shape_.shorter_side), normalisation_,
           shape_.image_size, nhwc_pixels);
}

Provenance ImageFolder::describe() const {
  constexpr std::int64_t most_files = 64;
  const std::int64_t num_looked_at = std::min(most_files, num_samples());
  FileProvenance all{.path = path_, .checksum = stream_of("")};
  for (std::int64_t i = 0; i < num_looked_at; ++i) {
    const std::int64_t sample = num_looked_at == 1 ? 0 : i * (num_samples() - 1) / (num_looked_at - 1);
    const MappedFile file(path_of(sample));
    all.size_bytes += file.size_bytes();
    all.checksum = stream_of(
        fmt::format("{:016x} {} {:016x}", all.checksum, path_of(sample).substr(path_.size()), sampled_checksum(file)));
  }
  return {.format = Format::image_folder,
          .files = {all},
          .num_samples = num_samples(),
          .detail = fmt::format(
              "{} classes, {} other files, {} × {} pixels of images with {} on their shorter side; size "
              "and checksum of {} files",
              classes_.size(), num_others_, shape_.image_size, shape_.image_size, shape_.shorter_side, num_looked_at)};
}

}  // namespace strata::data
