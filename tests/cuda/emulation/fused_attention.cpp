/// @file
/// Attention of the emulation where cuDNN would be called: the definition in f32, with probabilities and gradients of
/// scores rounded to bf16 before they are multiplied, as on tensor cores.

#include "exec/cuda/fused_attention.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/dtype.hpp"
#include "base/error.hpp"
#include "cuda/emulation/streams.hpp"
#include "exec/device/attention_choice.hpp"

namespace strata::cuda {

/// One head of one sample at a time: rows of it lie apart in the fused tensors.
struct FusedAttention::Call {
  AttentionPass pass;
  AttentionDims d;
  AttentionAddresses a;
  const std::byte* mask = nullptr;  ///< of dropout

  using Rows = std::vector<float>;  ///< [seq][head_dim]

  std::int64_t all_heads() const { return d.num_heads + 2 * d.num_kv_heads; }
  const bf16* row(const std::byte* from, std::int64_t heads, std::int64_t sample, std::int64_t i,
                  std::int64_t head) const {
    return reinterpret_cast<const bf16*>(from) + ((sample * d.seq + i) * heads + head) * d.head_dim;
  }
  Rows rows(const std::byte* from, std::int64_t heads, std::int64_t sample, std::int64_t head) const {
    Rows values;
    for (std::int64_t i = 0; i < d.seq; ++i) {
      const bf16* const at = row(from, heads, sample, i, head);
      for (std::int64_t c = 0; c < d.head_dim; ++c) values.push_back(static_cast<float>(at[c]));
    }
    return values;
  }
  void write(std::byte* to, std::int64_t heads, std::int64_t sample, std::int64_t head, const Rows& values) const {
    for (std::int64_t i = 0; i < d.seq; ++i) {
      bf16* const at = const_cast<bf16*>(row(to, heads, sample, i, head));
      for (std::int64_t c = 0; c < d.head_dim; ++c) at[c] = bf16(values[static_cast<std::size_t>(i * d.head_dim + c)]);
    }
  }
  float dot(const Rows& x, std::int64_t i, const Rows& y, std::int64_t j) const {
    float sum = 0.0F;
    for (std::int64_t c = 0; c < d.head_dim; ++c) {
      sum += x[static_cast<std::size_t>(i * d.head_dim + c)] * y[static_cast<std::size_t>(j * d.head_dim + c)];
    }
    return sum;
  }
  void add(Rows& x, std::int64_t i, float factor, const Rows& y, std::int64_t j) const {
    const auto rounded = static_cast<float>(bf16(factor));
    for (std::int64_t c = 0; c < d.head_dim; ++c) {
      x[static_cast<std::size_t>(i * d.head_dim + c)] += rounded * y[static_cast<std::size_t>(j * d.head_dim + c)];
    }
  }
  std::int64_t num_keys(std::int64_t query) const { return d.causal ? query + 1 : d.seq; }
  float kept() const { return 1.0F - d.dropout_probability; }
  float masked(std::int64_t sample, std::int64_t head, std::int64_t i, std::int64_t j) const {
    if (d.dropout_probability == 0.0F) return 1.0F;
    const std::int64_t row = (sample * d.num_heads + head) * d.seq + i;
    return static_cast<float>(reinterpret_cast<const bf16*>(mask)[row * dropout_mask_row(d) + j]);
  }
  float scale() const { return 1.0F / std::sqrt(static_cast<float>(d.head_dim)); }
  Rows zeros() const { return Rows(static_cast<std::size_t>(d.seq * d.head_dim)); }

  void forward(std::int64_t sample, std::int64_t head, const Rows& q, const Rows& k, const Rows& v) const {
    Rows y = zeros();
    for (std::int64_t i = 0; i < d.seq; ++i) {
      std::vector<float> scores;
      for (std::int64_t j = 0; j < num_keys(i); ++j) scores.push_back(scale() * dot(q, i, k, j));
      const float highest = *std::ranges::max_element(scores);
      float sum = 0.0F;
      for (const float score : scores) sum += std::exp(score - highest);
      for (std::int64_t j = 0; j < num_keys(i); ++j) {
        const float probability = std::exp(scores[static_cast<std::size_t>(j)] - highest) / sum;
        add(y, i, probability / kept() * masked(sample, head, i, j), v, j);
      }
      a.log_sum_exp[(sample * d.num_heads + head) * d.seq + i] = highest + std::log(sum);
    }
    write(a.y, d.num_heads, sample, head, y);
  }

  void backward(std::int64_t sample, std::int64_t head, const Rows& q, const Rows& k, const Rows& v, Rows& dk,
                Rows& dv) const {
    const Rows dy = rows(a.dy, d.num_heads, sample, head);
    const Rows y = rows(a.y, d.num_heads, sample, head);
    Rows dq = zeros();
    for (std::int64_t i = 0; i < d.seq; ++i) {
      const float output_product = dot(dy, i, y, i);
      const float log_sum_exp = a.log_sum_exp[(sample * d.num_heads + head) * d.seq + i];
      for (std::int64_t j = 0; j < num_keys(i); ++j) {
        const float probability = std::exp(scale() * dot(q, i, k, j) - log_sum_exp);
        const float factor = masked(sample, head, i, j);
        const float ds = scale() / kept() * probability * (dot(dy, i, v, j) * factor - output_product * kept());
        add(dv, j, probability / kept() * factor, dy, i);
        add(dk, j, ds, q, i);
        add(dq, i, ds, k, j);
      }
    }
    write(a.dqkv, all_heads(), sample, head, dq);
  }

  void run() const {
    const std::int64_t shared = d.num_heads / d.num_kv_heads;
    for (std::int64_t sample = 0; sample < d.batch; ++sample) {
      for (std::int64_t group = 0; group < d.num_kv_heads; ++group) {
        const Rows k = rows(a.qkv, all_heads(), sample, d.num_heads + group);
        const Rows v = rows(a.qkv, all_heads(), sample, d.num_heads + d.num_kv_heads + group);
        Rows dk = zeros();
        Rows dv = zeros();
        for (std::int64_t head = group * shared; head < (group + 1) * shared; ++head) {
          const Rows q = rows(a.qkv, all_heads(), sample, head);
          if (pass == AttentionPass::forward) {
            forward(sample, head, q, k, v);
          } else {
            backward(sample, head, q, k, v, dk, dv);
          }
        }
        if (pass == AttentionPass::forward) continue;
        write(a.dqkv, all_heads(), sample, d.num_heads + group, dk);
        write(a.dqkv, all_heads(), sample, d.num_heads + d.num_kv_heads + group, dv);
      }
    }
  }
};

FusedAttention::FusedAttention(Libraries& libraries, AttentionPass pass, const AttentionDims& dims,
                               const AttentionAddresses& addresses, std::span<std::byte> workspace)
    : call_(std::make_unique<const Call>(Call{.pass = pass, .d = dims, .a = addresses, .mask = workspace.data()})) {
  STRATA_INVARIANT(cudnn_attention_condition(dims).empty(), "what cuDNN's attention takes");
  const std::int64_t needed = pass == AttentionPass::forward
                                  ? dropout_mask_bytes(dims) + cudnn_forward_workspace_bytes
                                  : cudnn_backward_workspace(dims, libraries.numerics().deterministic).total();
  STRATA_INVARIANT(static_cast<std::int64_t>(workspace.size()) >= needed, "an attention's workspace");
}

FusedAttention::~FusedAttention() = default;

void FusedAttention::run(cudaStream_t stream) const {
  emulation::submit(stream, [call = *call_] { call.run(); });
}

}  // namespace strata::cuda
