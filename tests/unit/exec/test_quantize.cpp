/// @file
/// Blocks of codes: exact on their grid, half a step off elsewhere, in any order of chunks, on any threads.

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "base/quantization.hpp"
#include "exec/cpu/kernels/quantize.hpp"
#include "unit/exec/elements.hpp"

namespace strata::cpu::test_quantize {
namespace {

using test::random_tensor;
using test::Tensor;

constexpr std::int64_t sizes[] = {1, 2, 15, 16, 17, 33, 300, 4097};
constexpr std::int64_t blocks[] = {16, 256, 1024};
constexpr int all_bits[] = {4, 8};

std::vector<std::uint8_t> packed(const QuantizedDims& d, const Tensor& x, std::int64_t nodes = 1) {
  // A kernel defines every byte that travels.
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(d.chunks * quantized_bytes(d.chunk, d.bits, d.block)), 0xa5);
  quantize(d, nodes, x.data(), bytes.data());
  return bytes;
}

Tensor unpacked(const QuantizedDims& d, const std::vector<std::uint8_t>& bytes) {
  Tensor y(d.dtype, d.elements);
  dequantize(d, 1, bytes.data(), y.data(), false);
  return y;
}

TEST(Quantize, BytesOfAChunk) {
  EXPECT_EQ(quantized_bytes(0, 8, 256), 0);
  EXPECT_EQ(quantized_bytes(1, 8, 256), 4 + 4);
  EXPECT_EQ(quantized_bytes(257, 8, 256), 8 + 260);
  EXPECT_EQ(quantized_bytes(257, 4, 256), 8 + 132);
  EXPECT_EQ(quantized_bytes(1024, 4, 256), 16 + 512);
}

TEST(Quantize, CodesOfABlockAreExact) {
  for (const int bits : all_bits) {
    const int top = largest_code(bits);
    for (const std::int64_t n : sizes) {
      for (const std::int64_t block : blocks) {
        Tensor x(DType::f32, n);
        for (std::int64_t i = 0; i < n; ++i) {
          // Every block has a number at its end of the grid, in steps of its own.
          const auto code = static_cast<double>(i % block == 0 ? top : (7 * i) % (2 * top + 1) - top);
          x.set(i, std::ldexp(code, static_cast<int>(i / block % 5) - 7));
        }
        const QuantizedDims d{.elements = n, .chunk = n, .block = block, .bits = bits};
        EXPECT_EQ(unpacked(d, packed(d, x)).bits(), x.bits()) << bits << " bits, " << n << " in blocks of " << block;
      }
    }
  }
}

TEST(Quantize, AnErrorIsAtMostHalfAStepOfItsBlock) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int bits : all_bits) {
      for (const std::int64_t block : blocks) {
        constexpr std::int64_t n = 4097;
        const Tensor x = random_tensor(dtype, n, "x");
        const QuantizedDims d{.elements = n, .chunk = n, .block = block, .bits = bits, .dtype = dtype};
        const Tensor y = unpacked(d, packed(d, x));
        double worst = 0.0;  // in half steps
        for (std::int64_t first = 0; first < n; first += block) {
          double largest = 0.0;
          const std::int64_t end = std::min(n, first + block);
          for (std::int64_t i = first; i < end; ++i) largest = std::max(largest, std::abs(x.at(i)));
          const double half_step = largest / (2 * largest_code(bits));
          for (std::int64_t i = first; i < end; ++i) {
            const double error = std::abs(y.at(i) - x.at(i));
            ASSERT_LE(error, half_step * (1 + 1e-5) + test::unit_roundoff(dtype) * std::abs(y.at(i)) * 1.01);
            worst = std::max(worst, error / half_step);
          }
        }
        EXPECT_GT(worst, 0.9);  // the bound is not a loose one
      }
    }
  }
}

TEST(Quantize, ZerosAndWhatIsNotFinite) {
  const QuantizedDims d{.elements = 48, .chunk = 48, .block = 16, .bits = 8};
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    Tensor x(DType::f32, 48);
    for (std::int64_t i = 0; i < 48; ++i) x.set(i, i < 16 ? 0.0 : 1.0);
    x.set(20, bad);
    const Tensor y = unpacked(d, packed(d, x));
    for (std::int64_t i = 0; i < 48; ++i) {
      if (i / 16 == 1) {
        EXPECT_FALSE(std::isfinite(y.at(i))) << i;
      } else {
        EXPECT_EQ(y.at(i), i < 16 ? 0.0 : 1.0) << i;
      }
    }
  }
}

TEST(Quantize, TheSmallestAndTheLargestNumbers) {
  for (const double magnitude : {1e-42, 2e36}) {
    Tensor x(DType::f32, 16);
    for (std::int64_t i = 0; i < 16; ++i) x.set(i, i % 2 == 0 ? magnitude : -magnitude);
    const QuantizedDims d{.elements = 16, .chunk = 16, .block = 16, .bits = 4};
    const Tensor y = unpacked(d, packed(d, x));
    for (std::int64_t i = 0; i < 16; ++i) EXPECT_TRUE(std::isfinite(y.at(i)));
  }
}

/// 3 ranks on each of 2 nodes: rank l of node j gets chunk 3j + l, and what is for one l stands together.
TEST(Quantize, ChunksStandByPlaceInTheNodeFirst) {
  constexpr std::int64_t chunk = 20;
  for (const std::int64_t n : {std::int64_t{120}, std::int64_t{95}, std::int64_t{61}}) {
    Tensor x(DType::f32, n);
    for (std::int64_t i = 0; i < n; ++i) x.set(i, static_cast<double>(i / chunk + 1));
    const QuantizedDims d{.elements = n, .chunk = chunk, .chunks = 6, .block = 16, .bits = 4};
    const std::vector<std::uint8_t> bytes = packed(d, x, 2);
    const QuantizedDims as_they_stand{.elements = 6 * chunk, .chunk = chunk, .chunks = 6, .block = 16, .bits = 4};
    const Tensor y = unpacked(as_they_stand, bytes);
    const std::int64_t order[] = {0, 3, 1, 4, 2, 5};
    for (std::int64_t i = 0; i < 6 * chunk; ++i) {
      const std::int64_t c = order[i / chunk];
      const bool is_there = c * chunk + i % chunk < n;
      EXPECT_EQ(y.at(i), is_there ? static_cast<double>(c + 1) : 0.0) << i << " of " << n;
    }
  }
}

TEST(Quantize, PiecesAreAddedUp) {
  constexpr std::int64_t n = 70, pieces = 3;
  for (const bool accumulate : {false, true}) {
    const QuantizedDims d{.elements = n, .chunk = 40, .chunks = 2, .block = 16, .bits = 8, .dtype = DType::f32};
    std::vector<std::uint8_t> all;
    std::vector<double> expected(n, accumulate ? 5.0 : 0.0);
    for (std::int64_t p = 0; p < pieces; ++p) {
      const Tensor x = random_tensor(DType::f32, n, p == 0 ? "a" : p == 1 ? "b" : "c");
      const std::vector<std::uint8_t> one = packed(d, x);
      all.insert(all.end(), one.begin(), one.end());
      const Tensor back = unpacked(d, one);
      for (std::int64_t i = 0; i < n; ++i) expected[static_cast<std::size_t>(i)] += back.at(i);
    }
    Tensor y(DType::f32, n);
    for (std::int64_t i = 0; i < n; ++i) y.set(i, 5.0);
    dequantize(d, pieces, all.data(), y.data(), accumulate);
    for (std::int64_t i = 0; i < n; ++i) EXPECT_NEAR(y.at(i), expected[static_cast<std::size_t>(i)], 1e-6) << i;
  }
}

TEST(Quantize, SameBitsOnAnyThreads) {
  const Tensor x = random_tensor(DType::bf16, 100'003, "x");
  const QuantizedDims d{
      .elements = 100'003, .chunk = 25'001, .chunks = 4, .block = 16, .bits = 4, .dtype = DType::bf16};
  test::expect_same_bits_on_any_threads([&] { return packed(d, x, 2); });
  const std::vector<std::uint8_t> bytes = packed(d, x);
  test::expect_same_bits_on_any_threads([&] { return unpacked(d, bytes).bits(); });
}

}  // namespace
}  // namespace strata::cpu::test_quantize
