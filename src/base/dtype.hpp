#pragma once

/// @file
/// Element types of buffers, and bf16 as a storage type: rounded to nearest even from float, exact to float.

#include <bit>
#include <cstdint>
#include <string_view>

namespace strata {

enum class DType : std::uint8_t { f32, bf16, i32, u8 };

constexpr std::int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::i32: return 4;
    case DType::bf16: return 2;
    case DType::u8: return 1;
  }
  return 0;
}

constexpr std::string_view to_string(DType dtype) {
  switch (dtype) {
    case DType::f32: return "f32";
    case DType::i32: return "i32";
    case DType::bf16: return "bf16";
    case DType::u8: return "u8";
  }
  return "?";
}

/// @throws UserError listing the accepted names.
DType parse_dtype(std::string_view text);

/// Upper 16 bits of an IEEE float. Arithmetic is done in float; this type only stores.
struct bf16 {
  std::uint16_t bits = 0;

  bf16() = default;
  explicit bf16(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    if ((word & 0x7fffffffU) > 0x7f800000U) {  // NaN: keep it one, quiet
      bits = static_cast<std::uint16_t>((word >> 16U) | 0x40U);
      return;
    }
    bits = static_cast<std::uint16_t>((word + 0x7fffU + ((word >> 16U) & 1U)) >> 16U);
  }
  explicit operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U); }
  bool operator==(const bf16&) const = default;
};

}  // namespace strata
