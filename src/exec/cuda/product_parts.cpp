#include "exec/cuda/product_parts.hpp"

#include <cstddef>

namespace strata::cuda {
namespace {

/// bf16 values of 16 bytes.
constexpr std::int64_t vector = 8;
/// Fewer are taken not to be worth a second launch, of some microseconds.
constexpr std::int64_t fewest_outputs = 512;

const void* behind(const void* from, std::int64_t elements, DType dtype) {
  return from == nullptr ? nullptr : static_cast<const std::byte*>(from) + elements * size_of(dtype);
}
void* behind(void* from, std::int64_t elements, DType dtype) {
  return from == nullptr ? nullptr : static_cast<std::byte*>(from) + elements * size_of(dtype);
}

std::int64_t& outputs_of(MatmulLayout& layout, OutputsAre outputs) {
  return outputs == OutputsAre::m ? layout.m : outputs == OutputsAre::n ? layout.n : layout.k;
}

/// Outputs [begin, begin + count).
MatmulOperands part(MatmulOperands p, OutputsAre outputs, std::int64_t begin, std::int64_t count) {
  const MatmulLayout& l = p.layout;
  switch (outputs) {
    case OutputsAre::m:
      p.a = behind(p.a, begin * (l.transpose_a ? l.lda : 1), p.dtype);
      p.d = behind(p.d, begin, p.out_dtype);
      p.bias = behind(p.bias, begin, p.dtype);
      break;
    case OutputsAre::n:
      p.b = behind(p.b, begin * (l.transpose_b ? 1 : l.ldb), p.dtype);
      p.d = behind(p.d, begin * l.ldd, p.out_dtype);
      p.bias_gradient = behind(p.bias_gradient, begin, p.out_dtype);
      break;
    case OutputsAre::k:
      p.a = behind(p.a, begin * (l.transpose_a ? 1 : l.lda), p.dtype);
      p.b = behind(p.b, begin * (l.transpose_b ? l.ldb : 1), p.dtype);
      break;
  }
  outputs_of(p.layout, outputs) = count;
  return p;
}

bool rows_are_vectors(const MatmulLayout& l) {
  return l.lda % vector == 0 && l.ldb % vector == 0 && l.ldd % vector == 0;
}

}  // namespace

std::vector<MatmulOperands> product_parts(const MatmulOperands& whole, OutputsAre outputs) {
  MatmulLayout layout = whole.layout;
  const std::int64_t count = outputs_of(layout, outputs);
  const std::int64_t rest = count % vector;
  const bool is_summed = outputs == OutputsAre::k;
  // A sum that is added to something would be rounded twice.
  if (whole.dtype != DType::bf16 || rest == 0 || count < fewest_outputs || !rows_are_vectors(layout) ||
      whole.activation != MatmulOperands::Activation::none || (is_summed && whole.accumulate)) {
    return {whole};
  }
  MatmulOperands vectors = part(whole, outputs, 0, count - rest);
  const MatmulOperands last = part(whole, outputs, count - rest, rest);
  if (!is_summed) return {vectors, last};
  vectors.accumulate = true;
  return {last, vectors};
}

}  // namespace strata::cuda
