/// @file
/// CIFAR-10 files written here byte by byte: labels, layout, normalisation, writing back, and what is said of bad ones.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.hpp"
#include "data/cifar10.hpp"
#include "temporary_folder.hpp"

namespace strata::data::test_cifar10 {
namespace {

using testing::HasSubstr;

/// Byte of (record, channel, row, column): no two channels, rows or columns are alike.
std::uint8_t byte_at(std::int64_t record, std::int64_t channel, std::int64_t row, std::int64_t column) {
  return static_cast<std::uint8_t>(101 * record + 67 * channel + 5 * row + 3 * column);
}

std::vector<std::uint8_t> records(std::int64_t first, std::int64_t count) {
  std::vector<std::uint8_t> bytes;
  for (std::int64_t record = first; record < first + count; ++record) {
    bytes.push_back(static_cast<std::uint8_t>(record % 10));
    for (std::int64_t channel = 0; channel < 3; ++channel) {
      for (std::int64_t row = 0; row < 32; ++row) {
        for (std::int64_t column = 0; column < 32; ++column) {
          bytes.push_back(byte_at(record, channel, row, column));
        }
      }
    }
  }
  return bytes;
}

std::string contents(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

class Cifar10Files : public testing::Test {
 protected:
  TemporaryFolder folder_;
};

TEST_F(Cifar10Files, PixelsAreNormalisedChannelsLast) {
  const std::vector<std::string> paths = {folder_.write("1.bin", records(0, 3)), folder_.write("2.bin", records(3, 9))};
  constexpr std::array<double, 3> mean = {0.4914, 0.4822, 0.4465};
  constexpr std::array<double, 3> deviation = {0.2470, 0.2435, 0.2616};
  for (const Format format : {Format::cifar10, Format::automatic}) {
    const auto dataset = make_image_dataset({.format = format, .paths = paths});
    ASSERT_EQ(dataset->num_samples(), 12);
    EXPECT_EQ(dataset->image_size(), 32);
    std::vector<float> pixels(32 * 32 * 3);
    for (std::int64_t sample = 0; sample < 12; ++sample) {
      std::int32_t label = -1;
      dataset->image(sample, pixels, label);
      EXPECT_EQ(label, sample % 10);
      for (std::int64_t i = 0; i < 32 * 32 * 3; ++i) {
        const auto channel = static_cast<std::size_t>(i % 3);
        const double fraction = byte_at(sample, i % 3, i / 96, i / 3 % 32) / 255.0;
        ASSERT_NEAR(pixels[static_cast<std::size_t>(i)], (fraction - mean[channel]) / deviation[channel], 1e-6)
            << "sample " << sample << " float " << i;
      }
    }
  }
}

TEST_F(Cifar10Files, WritingBackIsByteForByte) {
  const std::string path = folder_.write("a.bin", records(0, 5));
  const auto dataset = make_image_dataset({.paths = {path}});
  write_cifar10(folder_.path("b.bin"), *dataset, 5);
  EXPECT_EQ(contents(folder_.path("b.bin")), contents(path));
}

TEST_F(Cifar10Files, SyntheticImagesSurviveTheFormat) {
  const auto synthetic = make_image_dataset({.format = Format::synthetic, .num_samples = 20});
  const std::string path = folder_.path("synthetic.bin");
  write_cifar10(path, *synthetic, 20);
  const auto read = make_image_dataset({.paths = {path}});
  ASSERT_EQ(read->num_samples(), 20);
  std::vector<float> expected(32 * 32 * 3);
  std::vector<float> pixels(expected.size());
  for (std::int64_t sample = 0; sample < 20; ++sample) {
    std::int32_t expected_label = -1;
    std::int32_t label = -2;
    synthetic->image(sample, expected, expected_label);
    read->image(sample, pixels, label);
    EXPECT_EQ(label, expected_label);
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      // Half a byte of rounding, and black and white are where the format ends.
      const float mean = cifar10_mean[i % 3];
      const float deviation = cifar10_deviation[i % 3];
      const float clipped = std::clamp(expected[i], -mean / deviation, (1.0F - mean) / deviation);
      ASSERT_NEAR(pixels[i], clipped, 0.5F / 255.0F / deviation + 1e-5F);
    }
  }
}

TEST_F(Cifar10Files, BadFiles) {
  std::vector<std::uint8_t> bytes = records(0, 2);
  bytes.pop_back();
  const std::string truncated = folder_.write("a.bin", bytes);
  EXPECT_EQ(user_error([&] { make_image_dataset({.paths = {truncated}}); }),
            "CIFAR-10 file " + truncated +
                " has 6145 bytes, which is no multiple of its records of 3073 bytes (1 label, 3 × 32 × 32 pixels)");
  bytes = records(0, 3);
  bytes[2 * 3073] = 10;
  const std::string label = folder_.write("b.bin", bytes);
  const auto dataset = make_image_dataset({.paths = {label}});
  std::vector<float> pixels(32 * 32 * 3);
  std::int32_t ignored = 0;
  dataset->image(1, pixels, ignored);
  EXPECT_EQ(user_error([&] { dataset->image(2, pixels, ignored); }),
            "CIFAR-10 file " + label + ": record 2 has label 10; labels are 0 to 9");
  const std::string empty = folder_.write("c.bin", std::string());
  EXPECT_EQ(user_error([&] { make_image_dataset({.paths = {empty}}); }), "data file " + empty + " is empty (0 bytes)");
  EXPECT_THAT(user_error([&] { make_image_dataset({.paths = {folder_.path("d.bin")}}); }),
              HasSubstr("No such file or directory"));
}

TEST_F(Cifar10Files, OptionsThatMakeNoSense) {
  const std::string path = folder_.write("a.bin", records(0, 1));
  EXPECT_EQ(user_error([&] { make_image_dataset({.paths = {path}, .image_size = 224}); }),
            "CIFAR-10 images (" + path + ") are 32 pixels a side and are not rescaled, but model.image_size = 224");
  EXPECT_EQ(user_error([&] { make_image_dataset({.paths = {path}, .num_classes = 9}); }),
            "CIFAR-10 (" + path + ") has 10 classes, but model.num_classes = 9");
  EXPECT_EQ(make_image_dataset({.paths = {path}, .num_classes = 1000})->num_classes(), 1000);
  EXPECT_THAT(user_error([&] { make_image_dataset({.format = Format::text, .paths = {path}}); }),
              HasSubstr("data.format = \"text\" holds tokens, but the model reads images"));
  EXPECT_THAT(user_error([&] { make_image_dataset({}); }), HasSubstr("data.paths is empty"));
  EXPECT_THAT(user_error([&] { make_image_dataset({.format = Format::synthetic, .num_classes = 0}); }),
              HasSubstr("model.num_classes = 0"));
  EXPECT_THAT(user_error([&] { make_image_dataset({.format = Format::synthetic, .paths = {path}}); }),
              HasSubstr("reads no file"));
}

TEST_F(Cifar10Files, AreVectorsOfAllTheirValues) {
  const std::string path = folder_.write("1.bin", records(0, 2));
  std::vector<float> image(3072);
  std::vector<float> vector(3072);
  std::int32_t label = -1;
  make_image_dataset({.paths = {path}})->image(1, image, label);
  make_image_dataset({.paths = {path}, .vector_values = 3072})->image(1, vector, label);
  EXPECT_EQ(image, vector);
  EXPECT_THAT([&] { make_image_dataset({.paths = {path}, .vector_values = 3000}); },
              ThrowsMessage<UserError>(HasSubstr("have 3072 values, but the model reads vectors of 3000")));
}

TEST_F(Cifar10Files, WritingRefusesWhatTheFormatCannotHold) {
  const auto large = make_image_dataset({.format = Format::synthetic, .image_size = 33, .num_classes = 11});
  EXPECT_EQ(user_error([&] { write_cifar10(folder_.path("a.bin"), *large, 1); }),
            "cannot write " + folder_.path("a.bin") +
                " as CIFAR-10: images of 33 pixels and 11 classes, not 32 and at most 10");
  const auto fitting = make_image_dataset({.format = Format::synthetic});
  EXPECT_EQ(user_error([&] { write_cifar10(folder_.path("no/a.bin"), *fitting, 1); }),
            "cannot write " + folder_.path("no/a.bin") + ": No such file or directory");
}

}  // namespace
}  // namespace strata::data::test_cifar10
