#include "exec/cpu/kernels/permute.hpp"

#include <cstring>

#include "exec/cpu/kernels/storage.hpp"

namespace strata::cpu {
namespace {

template <typename T>
void copy_runs(const PermuteDims& dims, const T* x, T* y) {
  const std::int64_t num_runs = dims.elements / dims.run;
  const auto run_bytes = sizeof(T) * static_cast<std::size_t>(dims.run);
#pragma omp parallel for schedule(static) if (dims.elements > 4 * chunk_elements)
  for (std::int64_t r = 0; r < num_runs; ++r) {
    std::memcpy(static_cast<void*>(y + r * dims.run), x + dims.begin_of(r), run_bytes);
  }
}

}  // namespace

void permute(const PermuteDims& dims, const void* x, void* y) {
  STRATA_INVARIANT(dims.run > 0 && dims.elements % dims.run == 0,
                   fmt::format("{} elements in runs of {}", dims.elements, dims.run));
  with_storage(dims.dtype, [&]<typename T>() { copy_runs(dims, static_cast<const T*>(x), static_cast<T*>(y)); });
}

}  // namespace strata::cpu
