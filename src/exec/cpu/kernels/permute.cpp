#include "exec/cpu/kernels/permute.hpp"

#include <algorithm>
#include <cstring>

#include "exec/cpu/kernels/storage.hpp"

namespace strata::cpu {
namespace {

/// Elements that a thread copies at a time.
constexpr std::int64_t piece_elements = 4 * chunk_elements;

template <typename T>
void copy_runs(const PermuteDims& dims, const T* x, T* y) {
  const std::int64_t num_pieces = (dims.elements + piece_elements - 1) / piece_elements;
#pragma omp parallel for schedule(static) if (num_pieces > 1)
  for (std::int64_t piece = 0; piece < num_pieces; ++piece) {
    const std::int64_t end = std::min(dims.elements, (piece + 1) * piece_elements);
    for (std::int64_t i = piece * piece_elements; i < end;) {
      const PermuteDims::Place place = dims.place(i);
      const std::int64_t count = std::min(place.neighbours, end - i);
      const T* from = dims.scatters ? x + i : x + place.at;
      T* to = dims.scatters ? y + place.at : y + i;
      std::memcpy(static_cast<void*>(to), from, sizeof(T) * static_cast<std::size_t>(count));
      i += count;
    }
  }
}

}  // namespace

void permute(const PermuteDims& dims, const void* x, void* y) {
  with_storage(dims.dtype, [&]<typename T>() { copy_runs(dims, static_cast<const T*>(x), static_cast<T*>(y)); });
}

}  // namespace strata::cpu
