/// @file
/// Runs of neighbours, copied in the largest pieces that all of them consist of.

#include "exec/cuda/kernels/device.cuh"
#include "exec/cuda/kernels/permute.hpp"
#include "exec/cuda/kernels/runs.cuh"

namespace strata::cuda {
namespace {

template <typename Piece>
__global__ void permute_kernel(Runs runs, bool scatters, const Piece* x, Piece* y, std::int64_t num_pieces) {
  for (std::int64_t i = flat_index(); i < num_pieces; i += flat_stride()) {
    const std::int64_t at = runs.at(i);
    y[scatters ? at : i] = x[scatters ? i : at];
  }
}

/// Bytes, a power of two of 16 at most, in which every run can be copied.
std::int64_t piece_bytes(const PermuteDims& d, const void* x, const void* y) {
  std::int64_t elements = d.run | d.first | d.elements;
  for (int l = 0; l < d.num_levels; ++l) elements |= d.strides[l] | d.period(l);
  const auto all = static_cast<std::uint64_t>(elements * size_of(d.dtype)) | reinterpret_cast<std::uintptr_t>(x) |
                   reinterpret_cast<std::uintptr_t>(y) | 16U;
  return static_cast<std::int64_t>(all & (~all + 1));
}

}  // namespace

void permute(const PermuteDims& d, const void* x, void* y, cudaStream_t stream) {
  const std::int64_t element = size_of(d.dtype);
  if (d.elements == 0) return;
  if (d.place(0).neighbours == d.elements) {
    const std::int64_t begin = d.first * element;
    check(cudaMemcpyAsync(static_cast<std::byte*>(y) + (d.scatters ? begin : 0),
                          static_cast<const std::byte*>(x) + (d.scatters ? 0 : begin),
                          static_cast<std::size_t>(d.elements * element), cudaMemcpyDeviceToDevice, stream),
          "permute");
    return;
  }
  const std::int64_t bytes = piece_bytes(d, x, y);
  const Runs runs(d, bytes / element, "permute");
  const std::int64_t num_pieces = d.elements * element / bytes;
  const auto launch = [&](auto piece) {
    using Piece = decltype(piece);
    permute_kernel<<<flat_blocks(num_pieces), flat_threads, 0, stream>>>(runs, d.scatters, static_cast<const Piece*>(x),
                                                                         static_cast<Piece*>(y), num_pieces);
  };
  switch (bytes) {
    case 16: launch(uint4{}); break;
    case 8: launch(uint2{}); break;
    case 4: launch(std::uint32_t{}); break;
    case 2: launch(std::uint16_t{}); break;
    default: throw InternalError("elements of f32 or bf16");
  }
  check_launch("permute");
}

}  // namespace strata::cuda
