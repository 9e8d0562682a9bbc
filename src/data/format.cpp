/// @file
/// The names of the formats stand here, once.

#include "data/format.hpp"

#include <fmt/core.h>

#include <array>

#include "base/error.hpp"

namespace strata::data {

std::string_view to_string(Format format) {
  switch (format) {
    case Format::automatic: return "auto";
    case Format::text: return "text";
    case Format::raw_u16: return "raw_u16";
    case Format::raw_u32: return "raw_u32";
    case Format::llmc: return "llmc";
    case Format::cifar10: return "cifar10";
    case Format::image_folder: return "image_folder";
    case Format::synthetic: return "synthetic";
  }
  return "?";
}

Format parse_format(std::string_view text) {
  constexpr std::array formats = {Format::automatic, Format::text,    Format::raw_u16,      Format::raw_u32,
                                  Format::llmc,      Format::cifar10, Format::image_folder, Format::synthetic};
  for (const Format format : formats) {
    if (text == to_string(format)) {
      return format;
    }
  }
  throw UserError(fmt::format(
      "unknown data format \"{}\"; accepted: auto, text, raw_u16, raw_u32, llmc, cifar10, image_folder, synthetic",
      text));
}

}  // namespace strata::data
