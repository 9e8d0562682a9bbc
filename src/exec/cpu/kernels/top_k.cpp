#include "exec/cpu/kernels/top_k.hpp"

#include "exec/cpu/kernels/cross_entropy.hpp"
#include "exec/cpu/kernels/storage.hpp"

namespace strata::cpu {
namespace {

template <typename T>
std::int64_t num_ahead_of(const T* logits, std::int64_t classes, std::int64_t target) {
  const auto own = static_cast<float>(logits[target]);
  std::int64_t ahead = 0;
  for (std::int64_t c = 0; c < classes; ++c) {
    const auto other = static_cast<float>(logits[c]);
    ahead += other > own || (other == own && c < target) ? 1 : 0;
  }
  return ahead;
}

}  // namespace

void top_k(const CrossEntropyDims& dims, const void* logits, const std::int32_t* targets, const TopKOutputs& outputs) {
  cross_entropy_forward(dims, logits, targets, outputs.loss);
  const std::int64_t stride = dims.row_stride == 0 ? dims.classes : dims.row_stride;
  with_storage(dims.dtype, [&]<typename T>() {
#pragma omp parallel for schedule(static)
    for (std::int64_t row = 0; row < dims.rows; ++row) {
      const bool counts = targets[row] != ignored_target;
      const std::int64_t ahead =
          counts ? num_ahead_of(static_cast<const T*>(logits) + row * stride, dims.classes, targets[row]) : 0;
      outputs.top_1[row] = counts && ahead < 1 ? 1.0F : 0.0F;
      outputs.top_5[row] = counts && ahead < 5 ? 1.0F : 0.0F;
    }
  });
}

}  // namespace strata::cpu
