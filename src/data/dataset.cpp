/// @file
/// The two factories: everything an options struct can get wrong is refused here, and here alone.

#include "data/dataset.hpp"

#include <fmt/core.h>

#include <array>
#include <filesystem>
#include <limits>
#include <utility>

#include "base/error.hpp"
#include "data/cifar10.hpp"
#include "data/image_folder.hpp"
#include "data/image_vectors.hpp"
#include "data/mapped_file.hpp"
#include "data/synthetic_images.hpp"
#include "data/synthetic_tokens.hpp"
#include "data/token_file.hpp"
#include "data/token_windows.hpp"

namespace strata::data {
namespace {

constexpr std::int64_t largest_id = std::numeric_limits<std::int32_t>::max();

void check_range(const char* what, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value < least || value > most) {
    throw UserError(fmt::format("{} = {}; accepted: {} to {}", what, value, least, most));
  }
}

/// Files for the formats that have them, none for synthetic.
void check_paths(Format format, const std::vector<std::string>& paths) {
  if (format == Format::synthetic && !paths.empty()) {
    throw UserError(fmt::format("data.format = \"synthetic\" reads no file, but data.paths names {}", paths.front()));
  }
  if (format != Format::synthetic && paths.empty()) {
    throw UserError(
        fmt::format("data.paths is empty, but data.format = \"{}\" needs at least one file (\"synthetic\" needs none)",
                    to_string(format)));
  }
}

Format one_format(Format format, const std::vector<MappedFile>& files) {
  if (format != Format::automatic) {
    return format;
  }
  const Format first = detect_token_format(files.front());
  for (const MappedFile& file : files) {
    if (const Format other = detect_token_format(file); other != first) {
      throw UserError(fmt::format("data.paths: {} is {} but {} is {}; all files must have one format",
                                  files.front().path(), to_string(first), file.path(), to_string(other)));
    }
  }
  return first;
}

std::vector<MappedFile> map_files(const std::vector<std::string>& paths) {
  std::vector<MappedFile> files;
  files.reserve(paths.size());
  for (const std::string& path : paths) {
    files.emplace_back(path);
  }
  return files;
}

/// By channel. @param given empty: @p of_format.
std::array<float, 3> three_channels(const char* key, const std::vector<double>& given,
                                    const std::array<float, 3>& of_format) {
  if (given.empty()) return of_format;
  if (given.size() != 3) {
    throw UserError(fmt::format("{} has {} values; accepted: 3, for red, green and blue", key, given.size()));
  }
  return {static_cast<float>(given[0]), static_cast<float>(given[1]), static_cast<float>(given[2])};
}

Normalisation asked_normalisation(const ImageOptions& options, const std::array<float, 3>& mean,
                                  const std::array<float, 3>& deviation) {
  return normalisation_of(three_channels("data.mean", options.mean, mean),
                          three_channels("data.deviation", options.deviation, deviation));
}

std::unique_ptr<ImageDataset> make_synthetic_images(const ImageOptions& options) {
  check_range("data.num_samples", options.num_samples, 1, std::numeric_limits<std::int64_t>::max());
  if (!options.mean.empty() || !options.deviation.empty()) {
    throw UserError(fmt::format("data.{} is of images in files, but the format is synthetic",
                                options.mean.empty() ? "deviation" : "mean"));
  }
  return std::make_unique<SyntheticImages>(options.num_samples, options.image_size, options.num_classes, options.seed);
}

std::unique_ptr<ImageDataset> open_cifar10(const ImageOptions& options) {
  if (options.image_size != cifar10_image_size) {
    throw UserError(
        fmt::format("CIFAR-10 images ({}) are 32 pixels a side and are not rescaled, but model.image_size = {}",
                    options.paths.front(), options.image_size));
  }
  if (options.num_classes < cifar10_num_classes) {
    throw UserError(fmt::format("CIFAR-10 ({}) has 10 classes, but model.num_classes = {}", options.paths.front(),
                                options.num_classes));
  }
  return std::make_unique<Cifar10>(map_files(options.paths), options.num_classes,
                                   asked_normalisation(options, cifar10_mean, cifar10_deviation));
}

std::unique_ptr<ImageDataset> open_image_folder(const ImageOptions& options) {
  if (options.paths.size() != 1) {
    throw UserError(
        fmt::format("data.paths names {} folders; data.format = \"image_folder\" reads one", options.paths.size()));
  }
  const std::int64_t shorter_side = options.shorter_side == 0 ? options.image_size : options.shorter_side;
  if (shorter_side < options.image_size) {
    throw UserError(fmt::format(
        "data.resize = {} is less than the {} pixels a side that the model reads; accepted: 0, or {} at least",
        shorter_side, options.image_size, options.image_size));
  }
  return std::make_unique<ImageFolder>(
      options.paths.front(),
      ImageFolder::Shape{
          .image_size = options.image_size, .shorter_side = shorter_side, .num_classes = options.num_classes},
      asked_normalisation(options, imagenet_mean, imagenet_deviation));
}

/// What data.format says; automatic: what the paths are.
Format format_of_images(const ImageOptions& options) {
  if (options.format != Format::automatic) return options.format;
  const bool is_folder = !options.paths.empty() && std::filesystem::is_directory(options.paths.front());
  return is_folder ? Format::image_folder : Format::cifar10;
}

/// Of models whose input is an image.
std::unique_ptr<ImageDataset> make_images(const ImageOptions& options) {
  const Format format = format_of_images(options);
  if (format != Format::cifar10 && format != Format::image_folder && format != Format::synthetic) {
    throw UserError(
        fmt::format("data.format = \"{}\" holds tokens, but the model reads images; accepted: auto, cifar10, "
                    "image_folder, synthetic",
                    to_string(format)));
  }
  check_range("model.image_size", options.image_size, 1, 65536);
  check_range("model.num_classes", options.num_classes, 1, largest_id);
  check_paths(options.format, options.paths);
  if (options.shorter_side != 0 && format != Format::image_folder) {
    throw UserError(
        fmt::format("data.resize is of data.format = \"image_folder\", but the format is {}", to_string(format)));
  }
  if (format == Format::synthetic) return make_synthetic_images(options);
  if (format == Format::cifar10) return open_cifar10(options);
  return open_image_folder(options);
}

}  // namespace

std::string to_string(const Provenance& provenance) {
  std::string text =
      fmt::format("{}: {} samples, {}", to_string(provenance.format), provenance.num_samples, provenance.detail);
  for (const FileProvenance& file : provenance.files) {
    text += fmt::format("; {} ({} bytes, checksum {:016x})", file.path, file.size_bytes, file.checksum);
  }
  return text;
}

std::unique_ptr<TokenDataset> make_token_dataset(const TokenOptions& options) {
  if (options.format == Format::cifar10 || options.format == Format::image_folder) {
    throw UserError(
        fmt::format("data.format = \"{}\" holds images, but the model reads tokens; accepted: auto, text, raw_u16, "
                    "raw_u32, llmc, synthetic",
                    to_string(options.format)));
  }
  check_range("model.sequence_length", options.sequence_length, 1, largest_id - 1);
  check_range("model.vocabulary", options.vocabulary, 1, largest_id);
  check_paths(options.format, options.paths);
  if (options.format == Format::synthetic) {
    check_range("data.num_samples", options.num_samples, 1, std::numeric_limits<std::int64_t>::max());
    if (options.end_of_text) {
      throw UserError("data.end_of_text is for text, but the format is synthetic");
    }
    return std::make_unique<SyntheticTokens>(options.num_samples, options.sequence_length, options.vocabulary,
                                             options.seed);
  }

  std::vector<MappedFile> mapped = map_files(options.paths);
  const Format format = one_format(options.format, mapped);
  if (options.end_of_text && format != Format::text) {
    throw UserError(fmt::format("data.end_of_text is for text, but the format is {}", to_string(format)));
  }
  const std::int64_t least_vocabulary = options.end_of_text ? end_of_text_token + 1 : 256;
  if (format == Format::text && options.vocabulary < least_vocabulary) {
    throw UserError(fmt::format(
        "text {} is read byte by byte and needs model.vocabulary of at least {}{}, but it is {}", options.paths.front(),
        least_vocabulary, options.end_of_text ? " (256 bytes and end of text)" : "", options.vocabulary));
  }
  std::vector<TokenFile> files;
  files.reserve(mapped.size());
  for (MappedFile& file : mapped) {
    files.emplace_back(std::move(file), format, options.end_of_text);
  }
  return std::make_unique<TokenWindows>(std::move(files), options.sequence_length, options.vocabulary);
}

std::unique_ptr<ImageDataset> make_image_dataset(const ImageOptions& options) {
  if (options.vector_values == 0) return make_images(options);
  ImageOptions of_images = options;
  of_images.image_size = image_size_of(options.vector_values);
  const bool is_cifar10 = !options.paths.empty() && format_of_images(options) == Format::cifar10;
  if (is_cifar10) of_images.image_size = cifar10_image_size;
  auto images = make_images(of_images);
  if (is_cifar10 && images->values_per_sample() != options.vector_values) {
    throw UserError(fmt::format("CIFAR-10 images ({}) have {} values, but the model reads vectors of {}",
                                options.paths.front(), images->values_per_sample(), options.vector_values));
  }
  return std::make_unique<ImageVectors>(std::move(images), options.vector_values);
}

}  // namespace strata::data
