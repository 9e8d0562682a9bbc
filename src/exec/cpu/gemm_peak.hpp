#pragma once

/// @file
/// The machine's measured matrix-product rate, the denominator of MFU. It is measured with a library, on shapes nobody
/// tuned for us.

#include <cstdint>
#include <span>

#include "base/dtype.hpp"
#include "exec/product_rates.hpp"

namespace strata::cpu {

/// FLOP/s (2n³ a product) of oneDNN's square product, of the best of @p sizes n, with the weights already as
/// oneDNN asks for them, random data, on the calling thread's OpenMP team. f32 → f32, or bf16 → bf16: where oneDNN
/// takes no bf16 that is an f32 product and the conversions of the input and the result, as in training. The sizes take
/// turns, several times, so that what disturbs a machine for a while does not meet all repetitions of one.
/// @param budget_seconds shared equally by the sizes; each runs at least once a turn after a warm-up.
ProductRates measure_product_rates(DType dtype, std::span<const std::int64_t> sizes, double budget_seconds);

}  // namespace strata::cpu
