#include "exec/device/attention_choice.hpp"

#include <fmt/core.h>

#include "base/ceil_div.hpp"
#include "base/error.hpp"
#include "exec/kernel_arguments.hpp"

namespace strata::cuda {
namespace {

/// Every part begins where any element may.
constexpr std::int64_t aligned(std::int64_t bytes) { return round_up(bytes, 256); }

bool is_attention(const Instruction& in) {
  return in.kernel == Kernel::attention_forward || in.kernel == Kernel::attention_backward;
}

}  // namespace

std::string cudnn_attention_condition(const AttentionDims& d) {
  if (d.dtype != DType::bf16) return fmt::format("it is of bf16, and the activations are {}", to_string(d.dtype));
  if (d.head_dim % 8 != 0 || d.head_dim > cudnn_max_head_dim) {
    return fmt::format("it takes heads of a multiple of 8 up to {} elements, and they have {}", cudnn_max_head_dim,
                       d.head_dim);
  }
  if (d.seq < 2) return fmt::format("it takes sequences of 2 positions or more, and they have {}", d.seq);
  return "";
}

bool uses_cudnn_attention(const AttentionDims& dims, const Numerics& numerics) {
  if (numerics.attention == AttentionKernels::strata) return false;
  const std::string condition = cudnn_attention_condition(dims);
  if (condition.empty()) return true;
  if (numerics.attention == AttentionKernels::automatic) return false;
  throw Unsupported(fmt::format(
      "cuda.attention = \"cudnn\": cuDNN's fused attention does not serve: {}; \"auto\" or \"strata\" do", condition));
}

std::string attention_of(const Program& program, const Numerics& numerics) {
  bool cudnn = false;
  bool strata = false;
  for (const auto* section : {&program.prologue, &program.body}) {
    for (const Instruction& in : *section) {
      if (!is_attention(in)) continue;
      (uses_cudnn_attention(KernelDims(program, in).attention(), numerics) ? cudnn : strata) = true;
    }
  }
  if (cudnn && strata) return "cudnn and strata";
  return cudnn ? "cudnn" : strata ? "strata" : "";
}

std::int64_t dropout_mask_bytes(const AttentionDims& d) {
  if (d.dropout_probability == 0.0F) return 0;
  return aligned(d.batch * d.num_heads * d.seq * dropout_mask_row(d) * size_of(DType::bf16));
}

std::int64_t dropout_mask_traffic(const Program& program, const Numerics& numerics) {
  std::int64_t bytes = 0;
  for (const Instruction& in : program.body) {
    if (!is_attention(in)) continue;
    const AttentionDims dims = KernelDims(program, in).attention();
    if (uses_cudnn_attention(dims, numerics)) bytes += 2 * dropout_mask_bytes(dims);
  }
  return bytes;
}

CudnnBackwardWorkspace cudnn_backward_workspace(const AttentionDims& d, bool deterministic) {
  constexpr std::int64_t bf16_bytes = size_of(DType::bf16);
  constexpr std::int64_t f32_bytes = size_of(DType::f32);
  const std::int64_t heads = d.batch * d.num_heads;
  CudnnBackwardWorkspace w;
  w.dropout_mask = dropout_mask_bytes(d);
  w.output_products = aligned(heads * d.seq * f32_bytes);
  w.library = cudnn_forward_workspace_bytes;
  if (deterministic) {
    // The gradient of every score: dq is then a product like any other.
    w.library += aligned(heads * round_up(d.seq, 64) * round_up(d.seq, 128) * bf16_bytes);
  } else {
    w.query_sums = aligned(heads * d.seq * d.head_dim * f32_bytes);
    w.library += aligned(heads * round_up(d.seq, 8) * d.head_dim * f32_bytes);
  }
  // dk and dv of every query head, before those that share a key head are added.
  if (d.num_heads != d.num_kv_heads) w.library += 2 * aligned(heads * d.seq * d.head_dim * bf16_bytes);
  return w;
}

}  // namespace strata::cuda
