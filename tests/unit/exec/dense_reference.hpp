#pragma once

/// @file
/// Tensors for the tests of dense kernels: values drawn by the counter-based generator, stored as f32 or bf16, read
/// back as double, so that references are computed in double from exactly the stored values.

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "base/random.hpp"

namespace strata::test {

/// A f32 or bf16 tensor, 64-byte aligned.
class Tensor {
 public:
  Tensor(DType dtype, std::int64_t num_elements)
      : dtype_(dtype),
        num_elements_(num_elements),
        data_(static_cast<std::byte*>(
                  std::aligned_alloc(64, static_cast<std::size_t>((num_elements * size_of(dtype) + 63) / 64 * 64))),
              &std::free) {}

  void* data() { return data_.get(); }
  const void* data() const { return data_.get(); }
  std::int64_t size() const { return num_elements_; }
  DType dtype() const { return dtype_; }

  double at(std::int64_t i) const {
    if (dtype_ == DType::f32) {
      float value = 0;
      std::memcpy(&value, data_.get() + i * 4, 4);
      return static_cast<double>(value);
    }
    bf16 value;
    std::memcpy(&value, data_.get() + i * 2, 2);
    return static_cast<double>(static_cast<float>(value));
  }
  void set(std::int64_t i, double value) {
    const auto single = static_cast<float>(value);
    if (dtype_ == DType::f32) {
      std::memcpy(data_.get() + i * 4, &single, 4);
    } else {
      const bf16 rounded(single);
      std::memcpy(data_.get() + i * 2, &rounded, 2);
    }
  }
  std::vector<double> values() const {
    std::vector<double> result(static_cast<std::size_t>(num_elements_));
    for (std::int64_t i = 0; i < num_elements_; ++i) {
      result[static_cast<std::size_t>(i)] = at(i);
    }
    return result;
  }
  /// The stored bits, to be compared with ==.
  std::string bits() const {
    return {reinterpret_cast<const char*>(data_.get()), static_cast<std::size_t>(num_elements_ * size_of(dtype_))};
  }

 private:
  DType dtype_;
  std::int64_t num_elements_;
  std::unique_ptr<std::byte, decltype(&std::free)> data_;
};

/// Values of a new tensor, by its name: one of the next two.
using Make = Tensor (*)(DType, std::int64_t, const char*);

/// Uniform in [-1, 1).
inline Tensor random_tensor(DType dtype, std::int64_t num_elements, const char* name) {
  Tensor tensor(dtype, num_elements);
  const RandomStream random{.seed = 7, .stream = stream_of(name)};
  for (std::int64_t i = 0; i < num_elements; ++i) {
    tensor.set(i, 2.0 * static_cast<double>(random.uniform(static_cast<std::uint64_t>(i))) - 1.0);
  }
  return tensor;
}

/// Integers in -2..2: sums and products of a few hundred are exact in f32, and in bf16 up to 256.
inline Tensor integer_tensor(DType dtype, std::int64_t num_elements, const char* name) {
  Tensor tensor(dtype, num_elements);
  const RandomStream random{.seed = 7, .stream = stream_of(name)};
  for (std::int64_t i = 0; i < num_elements; ++i) {
    tensor.set(i, static_cast<double>(random.word(static_cast<std::uint64_t>(i)) % 5) - 2.0);
  }
  return tensor;
}

/// ‖actual - expected‖ / ‖expected‖.
inline double relative_error(const std::vector<double>& actual, const std::vector<double>& expected) {
  EXPECT_EQ(actual.size(), expected.size());
  double error = 0;
  double norm = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    error += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  EXPECT_GT(norm, 0.0) << "a reference of zeros tests nothing";
  return std::sqrt(error / norm);
}

/// What one rounding to the stored type, after sums in f32, may cost in the norm: bf16 rounds by at most 2^-8 relative,
/// about half of it in the mean.
inline double tolerance(DType stored) { return stored == DType::f32 ? 1e-6 : 2.5e-3; }

/// Exactly the bytes that a kernel asked for, with a guard behind them that must survive.
class Workspace {
 public:
  explicit Workspace(std::int64_t num_bytes) : num_bytes_(num_bytes), memory_(DType::f32, num_bytes / 4 + 64) {
    std::memset(memory_.data(), 0xa5, static_cast<std::size_t>(num_bytes_ + guard_bytes));
  }
  std::span<std::byte> span() {
    return {static_cast<std::byte*>(memory_.data()), static_cast<std::size_t>(num_bytes_)};
  }
  bool guard_intact() {
    const auto* guard = static_cast<const unsigned char*>(memory_.data()) + num_bytes_;
    for (std::int64_t i = 0; i < guard_bytes; ++i) {
      if (guard[i] != 0xa5) {
        return false;
      }
    }
    return true;
  }

 private:
  static constexpr std::int64_t guard_bytes = 128;
  std::int64_t num_bytes_;
  Tensor memory_;
};

}  // namespace strata::test
