#pragma once

/// @file
/// bf16 operands on processors that have no bf16 instructions for oneDNN: the primitive is built for f32 and works on
/// copies. The arithmetic stays that of a bf16 product (operands exact in f32, sums in f32, one rounding to the
/// output's type); the price is a pass over each operand, and the rate of f32.

#include <cstdint>
#include <dnnl.hpp>
#include <vector>

#include "base/dtype.hpp"

namespace strata::cpu {

/// Whether oneDNN is given bf16 operands: where the processor has instructions for them (AVX512_BF16), unless
/// ONEDNN_MAX_CPU_ISA limits it to less. Everything that depends on it asks here; constant in a process.
bool dnnl_takes_bf16();

/// What oneDNN is given for a tensor that is stored as @p stored: just that, or, of a bf16 tensor where oneDNN takes
/// none, the layout of its F32Copy. A layout that is left to oneDNN to choose stays so.
dnnl::memory::desc computable(const dnnl::memory::desc& stored);

/// The way between a strided bf16 tensor and a copy in f32: the same dims, in the same order in memory, without gaps.
class F32Copy {
 public:
  /// @param stored plain strides, no blocks; elements that share memory are read alike, and must not be written.
  explicit F32Copy(const dnnl::memory::desc& stored);

  const dnnl::memory::desc& layout() const { return layout_; }

  /// Both run on the OpenMP threads and touch the tensor's elements alone, not what lies between its rows.
  void widen(const bf16* stored, float* copy) const;
  void narrow(const float* copy, bf16* stored) const;

 private:
  struct Dim {
    std::int64_t size;
    std::int64_t stride;
  };

  /// Calls body(offset in the stored tensor, offset in the copy, count) for pieces that are contiguous in both.
  template <typename Body>
  void for_pieces(Body&& body) const;

  dnnl::memory::desc layout_;
  std::vector<Dim> outer_;  // of the runs in the stored tensor, slowest first; in the copy they follow one another
  std::int64_t num_runs_ = 1;
  std::int64_t run_ = 1;  // elements
};

}  // namespace strata::cpu
