#include "exec/cuda/kernels/device.cuh"
#include "exec/cuda/kernels/divisor.cuh"
#include "exec/cuda/kernels/dropout_mask.hpp"
#include "exec/cuda/kernels/random.cuh"
#include "exec/device/attention_choice.hpp"

namespace strata::cuda {
namespace {

/// A vector a thread: its random words come in two or three blocks, where one by one they would take eight.
__global__ void mask_kernel(AttentionDims d, std::int64_t num_vectors, Divisor vectors_a_row, Divisor seq,
                            Divisor num_heads, device_bf16* mask, const RandomStream* random) {
  const std::int64_t vector = flat_index();
  if (vector >= num_vectors) return;
  auto column = static_cast<std::uint32_t>(vector);
  std::uint32_t query = vectors_a_row.divide(column);
  std::uint32_t head = seq.divide(query);
  const std::int64_t sample = num_heads.divide(head);
  const std::int64_t first_key = std::int64_t{column} * pack;
  const std::int64_t end_key = d.causal ? std::int64_t{query} + 1 : d.seq;
  float kept[pack] = {};
  if (first_key < end_key) {
    const std::int64_t heads = d.total_heads == 0 ? d.num_heads : d.total_heads;
    const std::int64_t row = ((d.first_sample + sample) * heads + d.first_head + head) * d.seq + query;
    float u[pack];
    uniforms(*random, static_cast<std::uint64_t>(row * d.seq + first_key), u);
#pragma unroll
    for (int i = 0; i < pack; ++i) kept[i] = first_key + i >= end_key || u[i] < d.dropout_probability ? 0.0F : 1.0F;
  }
  store_pack(mask + vector * pack, kept);
}

}  // namespace

void attention_dropout_mask(const AttentionDims& d, std::byte* mask, const RandomStream* random, cudaStream_t stream) {
  const std::int64_t vectors_a_row = dropout_mask_row(d) / pack;
  const std::int64_t num_vectors = d.batch * d.num_heads * d.seq * vectors_a_row;
  check_count(num_vectors, "the dropout mask of attention");
  constexpr unsigned threads = 256;
  mask_kernel<<<static_cast<unsigned>((num_vectors + threads - 1) / threads), threads, 0, stream>>>(
      d, num_vectors, Divisor(vectors_a_row), Divisor(d.seq), Divisor(d.num_heads),
      reinterpret_cast<device_bf16*>(mask), random);
  check_launch("attention_dropout_mask");
}

}  // namespace strata::cuda
