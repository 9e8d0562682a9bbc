/// @file
/// Residual addition: a map of two tensors.

#include "exec/cpu/kernels/residual.hpp"

#include "exec/cpu/kernels/map.hpp"

namespace strata::cpu {

void add(DType dtype, const void* a, const void* b, void* y, std::int64_t n) {
  with_storage(dtype, [&]<typename T>() {
    map(static_cast<const T*>(a), static_cast<const T*>(b), static_cast<T*>(y), n,
        [](F32x16 u, F32x16 v) { return u + v; });
  });
}

}  // namespace strata::cpu
