#pragma once

/// @file
/// What multiplies bf16 operands: those that attention packs itself (bf16_panels.hpp), and those of direct convolutions
/// (winograd_choice.hpp). Linear layers ask for AMX alone: on AVX512_BF16 oneDNN's products are as fast as packed ones,
/// and faster where there are few rows.

#include <cstdint>

namespace strata::cpu {

/// dot_products: VDPBF16PS of AVX512_BF16; tiles: AMX. none: the processor has neither, and operands are widened.
enum class Bf16Unit : std::uint8_t { none, dot_products, tiles };

/// tiles where amx_available(), dot_products where the processor has AVX512_BF16 alone; none too where oneDNN's
/// instruction sets are limited to those without bf16: then ours are. Constant in a process.
Bf16Unit bf16_unit();

}  // namespace strata::cpu
