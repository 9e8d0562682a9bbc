/// @file
/// Values are made in batches of 64 that start at multiples of 64 of the global index; a slice that begins or ends
/// inside a batch copies its part. So a value never depends on where a slice begins.

#include "exec/cpu/kernels/initialize.hpp"

#include <algorithm>
#include <cmath>

#include "exec/cpu/kernels/philox_words.hpp"
#include "exec/cpu/kernels/storage.hpp"

namespace strata::cpu {

namespace {

constexpr std::int64_t batch_elements = 64;
constexpr auto batch = static_cast<std::uint64_t>(batch_elements);

/// words[0 … 63] of the batch that begins at element @p first.
void batch_words(const RandomStream& stream, std::uint64_t first, std::uint32_t* words) {
  for (std::int64_t group = 0; group < batch_elements; group += philox_group_words) {
    philox_words(stream, (first + static_cast<std::uint64_t>(group)) / 4, words + group);
  }
}

void normal_batch(const RandomStream& stream, std::uint64_t first, float mean, float standard_deviation, float* out) {
  std::uint32_t words[batch_elements];
  batch_words(stream, first, words);
  for (int i = 0; i < batch_elements; i += 2) {
    const NormalPair normals = normal_pair(words[i], words[i + 1]);
    out[i] = std::fma(standard_deviation, normals.cosine, mean);
    out[i + 1] = std::fma(standard_deviation, normals.sine, mean);
  }
}

void uniform_batch(const RandomStream& stream, std::uint64_t first, float lower, float upper, float* out) {
  std::uint32_t words[batch_elements];
  batch_words(stream, first, words);
  const float width = upper - lower;
  for (int i = 0; i < batch_elements; ++i) {
    out[i] = std::fma(width, static_cast<float>(static_cast<std::int32_t>(words[i] >> 8U)) * 0x1.0p-24F, lower);
  }
}

/// @param make writes the 64 values of the batch that begins at element first.
template <typename T, typename Make>
void fill_from_batches(const InitializedSlice& slice, Make&& make) {
  auto* const y = static_cast<T*>(slice.y);
  const std::uint64_t end = slice.first_element + static_cast<std::uint64_t>(slice.n);
  const std::uint64_t first_batch = slice.first_element / batch;
  const auto num_batches = static_cast<std::int64_t>((end + batch - 1) / batch - first_batch);
#pragma omp parallel for schedule(static) if (num_batches > 64)
  for (std::int64_t k = 0; k < num_batches; ++k) {
    float values[batch_elements];
    const std::uint64_t begin = (first_batch + static_cast<std::uint64_t>(k)) * batch;
    make(begin, values);
    const std::uint64_t from = std::max(begin, slice.first_element);
    const std::uint64_t to = std::min(begin + batch, end);
    T* out = y + (from - slice.first_element);
    const float* in = values + (from - begin);
    for_lanes(static_cast<std::int64_t>(to - from),
              [&](std::int64_t i, auto lanes) { store(out + i, load(in + i, lanes), lanes); });
  }
}

}  // namespace

void initialize_normal(const InitializedSlice& slice, float mean, float standard_deviation) {
  with_storage(slice.dtype, [&]<typename T>() {
    fill_from_batches<T>(slice, [&](std::uint64_t first, float* out) {
      normal_batch(slice.random, first, mean, standard_deviation, out);
    });
  });
}

void initialize_uniform(const InitializedSlice& slice, float lower, float upper) {
  with_storage(slice.dtype, [&]<typename T>() {
    fill_from_batches<T>(
        slice, [&](std::uint64_t first, float* out) { uniform_batch(slice.random, first, lower, upper, out); });
  });
}

}  // namespace strata::cpu
