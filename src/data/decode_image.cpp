#include "data/decode_image.hpp"

#include <fmt/core.h>
#include <png.h>
#include <turbojpeg.h>

#include <algorithm>
#include <array>
#include <memory>

#include "base/error.hpp"

namespace strata::data {
namespace {

[[noreturn]] void refuse(const std::string& path, const char* kind, std::string_view reason) {
  throw UserError(fmt::format("image {} cannot be read as {}: {}", path, kind, reason));
}

/// A header of a few bytes may promise gigabytes.
void size_image(const std::string& path, std::int64_t height, std::int64_t width, DecodedImage& image) {
  constexpr std::int64_t most_pixels = std::int64_t{1} << 27;
  if (height < 1 || width < 1 || height > most_pixels / width) {
    throw UserError(
        fmt::format("image {} has {} × {} pixels; accepted: 1 to {} in all", path, height, width, most_pixels));
  }
  image.extent = {.height = height, .width = width};
  image.rgb.resize(static_cast<std::size_t>(3 * height * width));
}

struct DestroyDecompressor {
  void operator()(void* handle) const { tjDestroy(handle); }
};

/// Of CMYK with 255 for no ink at all.
void rgb_of_inverted_cmyk(std::span<const std::uint8_t> cmyk, std::span<std::uint8_t> rgb) {
  for (std::size_t pixel = 0; 4 * pixel < cmyk.size(); ++pixel) {
    const unsigned black = cmyk[4 * pixel + 3];
    for (std::size_t c = 0; c < 3; ++c) {
      rgb[3 * pixel + c] = static_cast<std::uint8_t>((cmyk[4 * pixel + c] * black + 127U) / 255U);
    }
  }
}

void decode_jpeg(const std::string& path, std::span<const std::uint8_t> bytes, DecodedImage& image) {
  // A new one for each image: after some errors the next image would be refused too.
  const std::unique_ptr<void, DestroyDecompressor> decompressor(tjInitDecompress());
  void* handle = decompressor.get();
  if (handle == nullptr) throw OutOfMemory(fmt::format("a JPEG decompressor: {}", tjGetErrorStr2(nullptr)));
  const auto num_bytes = static_cast<unsigned long>(bytes.size());
  int width = 0, height = 0, subsampling = 0, colours = 0;
  const auto check = [&](int result) {
    if (result != 0) refuse(path, "JPEG", tjGetErrorStr2(handle));
  };
  check(tjDecompressHeader3(handle, bytes.data(), num_bytes, &width, &height, &subsampling, &colours));
  size_image(path, height, width, image);
  const auto decompress = [&](std::vector<std::uint8_t>& to, int format) {
    check(tjDecompress2(handle, bytes.data(), num_bytes, to.data(), width, 0, height, format,
                        TJFLAG_STOPONWARNING | TJFLAG_LIMITSCANS | TJFLAG_ACCURATEDCT));
  };
  if (colours != TJCS_CMYK && colours != TJCS_YCCK) return decompress(image.rgb, TJPF_RGB);
  std::vector<std::uint8_t> cmyk(image.rgb.size() / 3 * 4);
  decompress(cmyk, TJPF_CMYK);
  rgb_of_inverted_cmyk(cmyk, image.rgb);
}

void decode_png(const std::string& path, std::span<const std::uint8_t> bytes, DecodedImage& image) {
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  const std::unique_ptr<png_image, void (*)(png_image*)> freed(&png, png_image_free);
  if (png_image_begin_read_from_memory(&png, bytes.data(), bytes.size()) == 0) refuse(path, "PNG", png.message);
  size_image(path, png.height, png.width, image);
  png.format = PNG_FORMAT_RGBA;
  std::vector<std::uint8_t> rgba(image.rgb.size() / 3 * 4);
  if (png_image_finish_read(&png, nullptr, rgba.data(), 0, nullptr) == 0) refuse(path, "PNG", png.message);
  for (std::size_t pixel = 0; 4 * pixel < rgba.size(); ++pixel) {
    std::copy_n(&rgba[4 * pixel], 3, &image.rgb[3 * pixel]);
  }
}

}  // namespace

void decode_image(const std::string& path, std::span<const std::uint8_t> bytes, DecodedImage& image) {
  constexpr std::array<std::uint8_t, 3> jpeg = {0xff, 0xd8, 0xff};
  constexpr std::array<std::uint8_t, 8> png = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  const auto begins_with = [&](std::span<const std::uint8_t> magic) {
    return bytes.size() >= magic.size() && std::ranges::equal(bytes.first(magic.size()), magic);
  };
  if (begins_with(jpeg)) return decode_jpeg(path, bytes, image);
  if (begins_with(png)) return decode_png(path, bytes, image);
  throw UserError(fmt::format("image {} is neither JPEG nor PNG by its first bytes", path));
}

}  // namespace strata::data
