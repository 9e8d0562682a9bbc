#pragma once

/// @file
/// What training reads: samples by number. A dataset is a pure function of the sample and, for images, of what is drawn
/// for it, the same on every rank; which rank reads which sample when is order.hpp's business alone. Reading allocates
/// nothing and is safe from several threads.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/augmentation.hpp"
#include "data/format.hpp"

namespace strata::data {

/// One input file, for the record of a result.
struct FileProvenance {
  std::string path;
  std::int64_t size_bytes = 0;
  std::uint64_t checksum = 0;  ///< sampled_checksum
  bool operator==(const FileProvenance&) const = default;
};

/// Where the samples come from. Equal provenance on two machines means the same samples in the same numbering (as far
/// as a sampled checksum can tell).
struct Provenance {
  Format format = Format::synthetic;       ///< never automatic
  std::vector<FileProvenance> files = {};  ///< empty for synthetic
  std::int64_t num_samples = 0;
  std::string detail = {};  ///< what the numbers above leave out: window and vocabulary, seed, entropy; one line
  bool operator==(const Provenance&) const = default;
};

/// One line for the log: format, samples, detail, then each file with its size and checksum.
std::string to_string(const Provenance& provenance);

class Dataset {
 public:
  virtual ~Dataset() = default;
  /// Samples in one epoch, at least 1.
  virtual std::int64_t num_samples() const = 0;
  /// Reads at most 1 MiB a file for the checksum; call it once, on one rank.
  virtual Provenance describe() const = 0;

 protected:
  Dataset() = default;
  Dataset(const Dataset&) = default;
  Dataset& operator=(const Dataset&) = default;
};

/// Windows of sequence_length + 1 tokens: input is the first sequence_length of them, target the last.
class TokenDataset : public Dataset {
 public:
  virtual std::int64_t sequence_length() const = 0;
  /// Token ids are in [0, vocabulary).
  virtual std::int64_t vocabulary() const = 0;
  /// Fills both spans, each of sequence_length() ids or empty where it is not wanted; sample in [0, num_samples()).
  /// @throws UserError naming file and position of a token id outside the vocabulary.
  virtual void tokens(std::int64_t sample, std::span<std::int32_t> input, std::span<std::int32_t> target) const = 0;
};

/// Square RGB images with one label each.
class ImageDataset : public Dataset {
 public:
  static constexpr std::int64_t num_channels = 3;
  /// Height and width, pixels.
  virtual std::int64_t image_size() const = 0;
  /// Floats that image() fills: all of the image, or for models of vectors the first of it.
  virtual std::int64_t values_per_sample() const { return image_size() * image_size() * num_channels; }
  /// Labels are in [0, num_classes).
  virtual std::int64_t num_classes() const = 0;
  /// Fills `nhwc_pixels`, values_per_sample floats, row by row, channel fastest, normalised to about zero mean and unit
  /// variance a channel, or empty where only the label is wanted; sample in [0, num_samples()).
  /// @throws UserError naming file and record of a label that is none.
  virtual void view(std::int64_t sample, const ViewDraw& draw, std::span<float> nhwc_pixels,
                    std::int32_t& label) const = 0;
  /// The view that is the same in every epoch.
  void image(std::int64_t sample, std::span<float> nhwc_pixels, std::int32_t& label) const {
    view(sample, {}, nhwc_pixels, label);
  }
};

/// A window never crosses from one file to the next, and windows do not overlap: window w of a file is its tokens
/// [w·(s+1), (w+1)·(s+1)) with s = sequence_length; the tail of fewer tokens is dropped, and describe() counts it.
struct TokenOptions {
  Format format = Format::automatic;
  std::vector<std::string> paths = {};  ///< in this order; must be empty for synthetic
  std::int64_t sequence_length = 0;
  /// The model's. Text needs at least 256. Ids of token files are checked as they are read, not at load: a check at
  /// load would have every rank read the whole corpus before its first step.
  std::int64_t vocabulary = 0;
  bool end_of_text = false;              ///< text only: id 256 follows each file's last byte; vocabulary at least 257
  std::uint64_t seed = 1;                ///< synthetic only
  std::int64_t num_samples = 1'000'000;  ///< synthetic only: length of an epoch; sample i does not depend on it
};

/// @throws UserError for anything wrong in options or files; says which file, its size and what was expected.
std::unique_ptr<TokenDataset> make_token_dataset(const TokenOptions& options);

struct ImageOptions {
  Format format = Format::automatic;
  std::vector<std::string> paths = {};   ///< in this order; must be empty for synthetic
  std::int64_t image_size = 32;          ///< pixels; cifar10 is 32 and is not rescaled
  std::int64_t vector_values = 0;        ///< of a model whose input is a vector, which decides image_size; 0: of images
  std::int64_t num_classes = 10;         ///< the model's; cifar10 needs at least 10
  std::uint64_t seed = 1;                ///< synthetic only
  std::int64_t num_samples = 1'000'000;  ///< synthetic only: length of an epoch; sample i does not depend on it
  std::int64_t shorter_side = 0;         ///< data.resize, image_folder only, see view_of(); 0: image_size
  std::vector<double> mean = {}, deviation = {};  ///< of files, by channel, fractions of 255; empty: the format's
};

/// @throws UserError for anything wrong in options or files; says which file, its size and what was expected.
std::unique_ptr<ImageDataset> make_image_dataset(const ImageOptions& options);

}  // namespace strata::data
