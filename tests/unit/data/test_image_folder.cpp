/// @file
/// Folders of images written here, as PNG where bytes must come back; what Pillow writes as JPEG; and what is said of
/// bad ones.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <png.h>
#include <turbojpeg.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <vector>

#include "base/error.hpp"
#include "data/batch.hpp"
#include "data/decode_image.hpp"
#include "data/image_folder.hpp"
#include "temporary_folder.hpp"

namespace strata::data::test_image_folder {
namespace {

using testing::HasSubstr;

std::vector<std::uint8_t> pixels_of(const Extent& extent, int first) {
  std::vector<std::uint8_t> rgb;
  for (std::int64_t i = 0; i < extent.height * extent.width * 3; ++i) {
    rgb.push_back(static_cast<std::uint8_t>(first + 29 * i + i * i / 7));
  }
  return rgb;
}

std::string png_of(const std::vector<std::uint8_t>& bytes, const Extent& extent, png_uint_32 format = PNG_FORMAT_RGB) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(extent.width);
  image.height = static_cast<png_uint_32>(extent.height);
  image.format = format;
  png_alloc_size_t size = 0;
  png_image_write_get_memory_size(image, size, 0, bytes.data(), 0, nullptr);
  std::string file(size, '\0');
  png_image_write_to_memory(&image, file.data(), &size, 0, bytes.data(), 0, nullptr);
  file.resize(size);
  return file;
}

std::string jpeg_of(const std::vector<std::uint8_t>& bytes, const Extent& extent, int format = TJPF_RGB,
                    int quality = 95) {
  tjhandle handle = tjInitCompress();
  unsigned char* data = nullptr;
  unsigned long size = 0;
  const int subsampling = format == TJPF_GRAY ? TJSAMP_GRAY : TJSAMP_444;
  EXPECT_EQ(tjCompress2(handle, bytes.data(), static_cast<int>(extent.width), 0, static_cast<int>(extent.height),
                        format, &data, &size, subsampling, quality, 0),
            0);
  std::string file(reinterpret_cast<const char*>(data), size);
  tjFree(data);
  tjDestroy(handle);
  return file;
}

DecodedImage decoded(const std::string& file) {
  DecodedImage image;
  decode_image("x", {reinterpret_cast<const std::uint8_t*>(file.data()), file.size()}, image);
  return image;
}

TEST(DecodeImage, PngIsByteForByte) {
  const Extent extent{5, 7};
  const std::vector<std::uint8_t> rgb = pixels_of(extent, 3);
  const DecodedImage image = decoded(png_of(rgb, extent));
  EXPECT_EQ(image.extent, extent);
  EXPECT_EQ(image.rgb, rgb);
}

TEST(DecodeImage, GreyHasThreeEqualChannelsAndTransparencyIsIgnored) {
  const std::vector<std::uint8_t> grey = {0, 100, 200, 255};
  const std::vector<std::uint8_t> expected = {0, 0, 0, 100, 100, 100, 200, 200, 200, 255, 255, 255};
  EXPECT_EQ(decoded(png_of(grey, {2, 2}, PNG_FORMAT_GRAY)).rgb, expected);
  EXPECT_EQ(decoded(jpeg_of(std::vector<std::uint8_t>(64, 77), {8, 8}, TJPF_GRAY)).rgb,
            std::vector<std::uint8_t>(192, 77));
  const std::vector<std::uint8_t> half = {10, 20, 30, 128, 40, 50, 60, 0};
  EXPECT_EQ(decoded(png_of(half, {1, 2}, PNG_FORMAT_RGBA)).rgb, (std::vector<std::uint8_t>{10, 20, 30, 40, 50, 60}));
}

TEST(DecodeImage, JpegIsNearWhatWasWritten) {
  const Extent extent{16, 24};
  std::vector<std::uint8_t> rgb;
  for (std::int64_t r = 0; r < 16; ++r) {
    for (std::int64_t c = 0; c < 24; ++c) {
      for (const std::int64_t value : {8 * r, 10 * c, 255 - 8 * r}) rgb.push_back(static_cast<std::uint8_t>(value));
    }
  }
  const DecodedImage image = decoded(jpeg_of(rgb, extent));
  ASSERT_EQ(image.extent, extent);
  for (std::size_t i = 0; i < rgb.size(); ++i) ASSERT_NEAR(image.rgb[i], rgb[i], 8) << i;
}

/// Inverted: 255 is no ink. Pillow 13 reads these as 100, 50, 200 and, with black, half of it.
TEST(DecodeImage, CmykIsAdobes) {
  std::vector<std::uint8_t> cmyk;
  for (int i = 0; i < 64; ++i) cmyk.insert(cmyk.end(), {100, 50, 200, 255});
  for (int i = 0; i < 64; ++i) cmyk.insert(cmyk.end(), {100, 50, 200, 128});
  const DecodedImage image = decoded(jpeg_of(cmyk, {16, 8}, TJPF_CMYK, 100));
  for (std::size_t pixel = 0; pixel < 64; ++pixel) {
    const auto at = [&](std::size_t p) { return std::vector<int>(&image.rgb[3 * p], &image.rgb[3 * p] + 3); };
    EXPECT_THAT(at(pixel), testing::Pointwise(testing::Truly([](const auto& pair) {
                                                return std::abs(std::get<0>(pair) - std::get<1>(pair)) <= 2;
                                              }),
                                              {100, 50, 200}));
    EXPECT_THAT(at(64 + pixel), testing::Pointwise(testing::Truly([](const auto& pair) {
                                                     return std::abs(std::get<0>(pair) - std::get<1>(pair)) <= 2;
                                                   }),
                                                   {50, 25, 100}));
  }
}

TEST(DecodeImage, WhatIsRefused) {
  const Extent extent{32, 32};
  const std::string jpeg = jpeg_of(pixels_of(extent, 1), extent), png = png_of(pixels_of(extent, 1), extent);
  EXPECT_THAT(user_error([&] { decoded(jpeg.substr(0, jpeg.size() / 2)); }),
              HasSubstr("image x cannot be read as JPEG: Premature end of JPEG file"));
  EXPECT_THAT(user_error([&] { decoded(jpeg.substr(0, jpeg.size() - 2)); }),
              HasSubstr("image x cannot be read as JPEG: "));
  EXPECT_EQ(user_error([&] { decoded(jpeg.substr(0, 20)); }),
            "image x has 0 × 0 pixels; accepted: 1 to 134217728 in all");
  EXPECT_THAT(user_error([&] { decoded(png.substr(0, png.size() / 2)); }),
              HasSubstr("image x cannot be read as PNG: "));
  std::string damaged = png;
  damaged[damaged.size() / 2] = static_cast<char>(damaged[damaged.size() / 2] ^ 0x40);
  EXPECT_THAT(user_error([&] { decoded(damaged); }), HasSubstr("image x cannot be read as PNG: "));
  EXPECT_EQ(user_error([] { decoded("GIF89a"); }), "image x is neither JPEG nor PNG by its first bytes");
  std::string vast = png;
  std::memcpy(vast.data() + 16, "\x00\x01\x00\x00\x00\x01\x00\x00", 8);  // 65536 × 65536, and the header's checksum off
  EXPECT_THAT(user_error([&] { decoded(vast); }), HasSubstr("image x "));
  std::string large = jpeg;
  const std::size_t frame = large.find("\xff\xc0");
  std::memcpy(large.data() + frame + 5, "\xea\x60\xea\x60", 4);
  EXPECT_EQ(user_error([&] { decoded(large); }), "image x has 60000 × 60000 pixels; accepted: 1 to 134217728 in all");
}

TEST(DecodeImage, ARefusedImageLeavesNothingBehind) {
  const Extent extent{16, 16};
  const std::string whole = jpeg_of(pixels_of(extent, 1), extent);
  const std::vector<std::uint8_t> expected = decoded(whole).rgb;
  for (std::size_t size = 3; size < whole.size(); ++size) {
    EXPECT_NE(user_error([&] { decoded(whole.substr(0, size)); }), "") << size;
    EXPECT_EQ(decoded(whole).rgb, expected) << "after " << size;
  }
}

class ImageFolders : public testing::Test {
 protected:
  void put(const std::string& name, const std::string& bytes) {
    std::filesystem::create_directories(std::filesystem::path(folder_.path(name)).parent_path());
    folder_.write(name, bytes);
  }
  std::unique_ptr<ImageDataset> open(ImageOptions options) {
    options.format = Format::image_folder;
    options.paths = {folder_.path("train")};
    return make_image_dataset(options);
  }
  /// Three classes with 2, 1 and 3 images of different sizes.
  void put_images() {
    put("train/cat/b.png", png_of(pixels_of({6, 9}, 2), {6, 9}));
    put("train/cat/a.PNG", png_of(pixels_of({8, 8}, 1), {8, 8}));
    put("train/ape/1.jpg", jpeg_of(pixels_of({20, 30}, 3), {20, 30}));
    put("train/dog/3.jpeg", png_of(pixels_of({9, 8}, 6), {9, 8}));  // of another name
    put("train/dog/1.JPEG", jpeg_of(pixels_of({16, 8}, 4), {16, 8}));
    put("train/dog/2.png", png_of(pixels_of({8, 8}, 5), {8, 8}));
    put("train/dog/notes.txt", "none");
    put("train/list.txt", "none");
  }
  TemporaryFolder folder_;
};

TEST_F(ImageFolders, ClassesAndSamplesAreInTheOrderOfNames) {
  put_images();
  for (const Format format : {Format::image_folder, Format::automatic}) {
    const auto dataset =
        make_image_dataset({.format = format, .paths = {folder_.path("train")}, .image_size = 8, .num_classes = 3});
    ASSERT_EQ(dataset->num_samples(), 6);
    const std::map<std::int64_t, std::pair<std::int32_t, int>> of_the_right_size = {{1, {1, 1}}, {4, {2, 5}}};
    std::vector<float> pixels(8 * 8 * 3), none;
    std::vector<std::int32_t> labels;
    for (std::int64_t sample = 0; sample < 6; ++sample) {
      std::int32_t label = -1, alone = -1;
      dataset->image(sample, pixels, label);
      dataset->image(sample, none, alone);
      EXPECT_EQ(alone, label);
      labels.push_back(label);
      if (!of_the_right_size.contains(sample)) continue;
      const std::vector<std::uint8_t> rgb = pixels_of({8, 8}, of_the_right_size.at(sample).second);
      constexpr std::array<double, 3> mean = {0.485, 0.456, 0.406}, deviation = {0.229, 0.224, 0.225};
      for (std::size_t i = 0; i < rgb.size(); ++i) {
        ASSERT_NEAR(pixels[i], (rgb[i] / 255.0 - mean[i % 3]) / deviation[i % 3], 1e-5) << sample << ", " << i;
      }
    }
    EXPECT_EQ(labels, (std::vector<std::int32_t>{0, 1, 1, 2, 2, 2}));
  }
}

TEST_F(ImageFolders, ResizeMeanAndDeviationAreTheUsers) {
  put_images();
  const auto plain = open({.image_size = 4, .num_classes = 3});
  const auto middle =
      open({.image_size = 4, .num_classes = 3, .shorter_side = 8, .mean = {0, 0, 0}, .deviation = {1, 1, 1}});
  std::vector<float> whole(4 * 4 * 3), pixels(4 * 4 * 3);
  std::int32_t label = 0;
  plain->image(4, whole, label);
  middle->image(4, pixels, label);
  EXPECT_NE(whole, pixels);
  const std::vector<std::uint8_t> rgb = pixels_of({8, 8}, 5);
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    const std::size_t row = i / 12 + 2, column = i / 3 % 4 + 2;
    ASSERT_NEAR(pixels[i], rgb[(row * 8 + column) * 3 + i % 3] / 255.0, 1e-6) << i;
  }
}

TEST_F(ImageFolders, VariedImagesAreTheSameForAnyParts) {
  put_images();
  const auto dataset = open({.image_size = 8, .num_classes = 3, .shorter_side = 10});
  const Order order{.num_samples = 6, .global_batch = 9, .seed = 4, .shuffle = true};
  constexpr std::size_t floats = 8 * 8 * 3;
  for (const Augmentation& how :
       {Augmentation{.crop = true, .flip = true}, Augmentation{.resized_crop = true, .flip = true}}) {
    std::vector<float> one(9 * floats);
    load_images(*dataset, order, 2, 0, one, {}, how);
    std::vector<float> pixels(9 * floats);
    std::size_t first = 0;
    for (const std::size_t part : {2U, 4U, 3U}) {
      load_images(*dataset, order, 2, static_cast<std::int64_t>(first),
                  std::span(pixels).subspan(first * floats, part * floats), {}, how);
      first += part;
    }
    EXPECT_EQ(pixels, one);
  }
}

TEST_F(ImageFolders, DescribesItselfByNumbersAndASampledChecksum) {
  put_images();
  const auto checksum = [&] { return open({.image_size = 8, .num_classes = 3})->describe().files.at(0).checksum; };
  const Provenance provenance = open({.image_size = 8, .num_classes = 3})->describe();
  EXPECT_EQ(provenance.num_samples, 6);
  ASSERT_EQ(provenance.files.size(), 1U);
  std::int64_t bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_.path("train"))) {
    if (entry.is_regular_file() && entry.path().extension() != ".txt")
      bytes += static_cast<std::int64_t>(entry.file_size());
  }
  EXPECT_EQ(provenance.files[0].size_bytes, bytes);
  EXPECT_THAT(provenance.detail, HasSubstr("3 classes, 2 other files"));
  const std::uint64_t before = checksum();
  EXPECT_EQ(checksum(), before);
  put("train/dog/2.png", png_of(pixels_of({8, 8}, 55), {8, 8}));
  EXPECT_NE(checksum(), before);
}

TEST_F(ImageFolders, BadFolders) {
  const auto refusal = [&] { return user_error([&] { open({.image_size = 8, .num_classes = 3}); }); };
  const std::string train = folder_.path("train");
  EXPECT_EQ(refusal(), "cannot list folder " + train + " of data.paths: No such file or directory");
  put("train/1.png", "");
  EXPECT_EQ(refusal(), "folder " + train + " has 1 files and no folder; accepted: a folder of images for each class");
  put_images();
  EXPECT_EQ(user_error([&] { open({.image_size = 8, .num_classes = 10}); }),
            "folder " + train + " has 3 folders, from ape to dog, each a class, but model.num_classes = 10");
  std::filesystem::remove(train + "/ape/1.jpg");
  put("train/ape/readme", "");
  EXPECT_EQ(refusal(), "class folder " + train + "/ape has no image among its 1 files; accepted: .jpg, .jpeg, .png");
  put("train/ape/more/1.jpg", "");
  EXPECT_EQ(refusal(), "class folder " + train + "/ape holds the folder more; accepted: files");
}

TEST_F(ImageFolders, BadImagesAreNamed) {
  put_images();
  const std::string jpeg = jpeg_of(pixels_of({20, 30}, 3), {20, 30});
  put("train/ape/1.jpg", jpeg.substr(0, jpeg.size() / 2));
  put("train/cat/a.PNG", "text");
  const auto dataset = open({.image_size = 8, .num_classes = 3});
  std::vector<float> pixels(8 * 8 * 3);
  std::int32_t label = 0;
  EXPECT_THAT(user_error([&] { dataset->image(0, pixels, label); }),
              HasSubstr("image " + folder_.path("train") + "/ape/1.jpg cannot be read as JPEG: "));
  EXPECT_EQ(user_error([&] { dataset->image(1, pixels, label); }),
            "image " + folder_.path("train") + "/cat/a.PNG is neither JPEG nor PNG by its first bytes");
  std::filesystem::remove(folder_.path("train/cat/b.png"));
  EXPECT_THAT(user_error([&] { dataset->image(2, pixels, label); }),
              HasSubstr("/cat/b.png: No such file or directory"));
}

TEST_F(ImageFolders, OptionsThatMakeNoSense) {
  put_images();
  EXPECT_EQ(user_error([&] { open({.image_size = 8, .num_classes = 3, .shorter_side = 7}); }),
            "data.resize = 7 is less than the 8 pixels a side that the model reads; accepted: 0, or 8 at least");
  EXPECT_EQ(user_error([&] { open({.image_size = 8, .num_classes = 3, .mean = {0.5}}); }),
            "data.mean has 1 values; accepted: 3, for red, green and blue");
  ImageOptions two{.format = Format::image_folder,
                   .paths = {folder_.path("train"), folder_.path("train")},
                   .image_size = 8,
                   .num_classes = 3};
  EXPECT_EQ(user_error([&] { make_image_dataset(two); }),
            "data.paths names 2 folders; data.format = \"image_folder\" reads one");
  EXPECT_EQ(user_error([] {
              make_image_dataset({.format = Format::synthetic, .mean = {0, 0, 0}});
            }),
            "data.mean is of images in files, but the format is synthetic");
  EXPECT_EQ(user_error([] { make_image_dataset({.format = Format::synthetic, .shorter_side = 40}); }),
            "data.resize is of data.format = \"image_folder\", but the format is synthetic");
}

}  // namespace
}  // namespace strata::data::test_image_folder
