#include "exec/cuda/attention_plan.hpp"

#include <fmt/core.h>

#include <array>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "exec/device/attention_choice.hpp"

namespace strata::cuda {
namespace {

using Tensor = OperationGraph::Tensor;
using Extents = OperationGraph::Extents;

std::int64_t id_of(AttentionOperand operand) { return static_cast<std::int64_t>(operand); }

/// Heads come before positions in all extents: [batch, heads, positions, head_dim], whatever the memory.
class AttentionGraph {
 public:
  AttentionGraph(OperationGraph& graph, const AttentionDims& dims) : graph_(graph), d_(dims) {}

  void forward() {
    const Tensor s = scores(in_qkv(AttentionOperand::q, d_.num_heads), transposed_in_qkv(AttentionOperand::k));
    const Tensor x = d_.causal ? hidden(s) : s;
    const Tensor highest = between(statistic_extents());
    graph_.reduce(CUDNN_REDUCE_TENSOR_MAX, x, highest);
    const Tensor below = between(score_extents());
    graph_.pointwise(CUDNN_POINTWISE_SUB, x, highest, below);
    const Tensor power = between(score_extents());
    graph_.pointwise(CUDNN_POINTWISE_EXP, below, power);
    const Tensor sum = between(statistic_extents());
    graph_.reduce(CUDNN_REDUCE_TENSOR_ADD, power, sum);
    const Tensor log_sum = between(statistic_extents());
    graph_.pointwise(CUDNN_POINTWISE_LOG, sum, log_sum);
    graph_.pointwise(CUDNN_POINTWISE_ADD, highest, log_sum, statistic(AttentionOperand::log_sum_exp));
    const Tensor probability = drops() ? between(score_extents()) : graph_.between(bf16_type, score_extents());
    graph_.pointwise(CUDNN_POINTWISE_DIV, power, sum, probability);
    graph_.matmul(with_dropout(probability, bf16_type), in_qkv(AttentionOperand::v, d_.num_kv_heads),
                  in_heads(AttentionOperand::y));
  }

  void backward(bool deterministic) {
    const Tensor q = in_qkv(AttentionOperand::q, d_.num_heads);
    const Tensor k = transposed_in_qkv(AttentionOperand::k);
    const Tensor v = transposed_in_qkv(AttentionOperand::v);
    const Tensor dy = in_heads(AttentionOperand::dy);
    const Tensor scale = graph_.number(id_of(AttentionOperand::scale));

    const Tensor products = between(head_extents(d_.num_heads));
    graph_.pointwise(CUDNN_POINTWISE_MUL, dy, in_heads(AttentionOperand::y), products);
    const Tensor sum = between(statistic_extents());
    graph_.reduce(CUDNN_REDUCE_TENSOR_ADD, products, sum);
    const Tensor output_products = statistic(AttentionOperand::output_products);
    // cuDNN knows this graph with a factor here; one beside 1 it has not applied where there is a mask (9.19, H200).
    graph_.pointwise(CUDNN_POINTWISE_MUL, sum, graph_.number(id_of(AttentionOperand::one)), output_products);

    const Tensor below = between(score_extents());
    graph_.pointwise(CUDNN_POINTWISE_SUB, scores(q, k, scale), statistic(AttentionOperand::log_sum_exp), below);
    const Tensor probability = between(score_extents());
    graph_.pointwise(CUDNN_POINTWISE_EXP, d_.causal ? hidden(below) : below, probability);
    gradient_of_keys(with_dropout(probability, f32_type), dy, AttentionOperand::dv);

    const Tensor dp = between(score_extents());
    graph_.matmul(dy, v, dp);
    const Tensor dp_less = between(score_extents());
    graph_.pointwise(CUDNN_POINTWISE_SUB, scaled_up(masked(dp, f32_type)), output_products, dp_less);
    const Tensor unscaled = between(score_extents());
    graph_.pointwise(CUDNN_POINTWISE_MUL, dp_less, probability, unscaled);
    const Tensor ds = between(score_extents());
    graph_.pointwise(CUDNN_POINTWISE_MUL, unscaled, scale, ds);
    gradient_of_keys(ds, q, AttentionOperand::dk);

    const Tensor rows_of_k = graph_.between(f32_type, head_extents(d_.num_kv_heads), qkv_strides());
    graph_.reshape(k, rows_of_k);
    const Tensor dq = in_qkv(AttentionOperand::dq, d_.num_heads);
    if (deterministic) {
      graph_.matmul(ds, rows_of_k, dq);
    } else {
      const Extents n = head_extents(d_.num_heads);
      const Tensor sums = graph_.in_memory(id_of(AttentionOperand::query_sums), f32_type, n, packed(n));
      graph_.matmul(ds, rows_of_k, sums);
      graph_.pointwise(CUDNN_POINTWISE_IDENTITY, sums, dq);
    }
  }

 private:
  Extents head_extents(std::int64_t heads) const { return {d_.batch, heads, d_.seq, d_.head_dim}; }
  Extents score_extents() const { return {d_.batch, d_.num_heads, d_.seq, d_.seq}; }
  Extents statistic_extents() const { return {d_.batch, d_.num_heads, d_.seq, 1}; }
  Extents qkv_strides() const {
    const std::int64_t position = (d_.num_heads + 2 * d_.num_kv_heads) * d_.head_dim;
    return {d_.seq * position, d_.head_dim, position, 1};
  }

  Tensor between(const Extents& extents) { return graph_.between(f32_type, extents); }
  Tensor in_qkv(AttentionOperand operand, std::int64_t heads) {
    return graph_.in_memory(id_of(operand), bf16_type, head_extents(heads), qkv_strides());
  }
  Tensor transposed_in_qkv(AttentionOperand operand) {
    Extents extents = head_extents(d_.num_kv_heads);
    Extents strides = qkv_strides();
    std::swap(extents[2], extents[3]);
    std::swap(strides[2], strides[3]);
    return graph_.in_memory(id_of(operand), bf16_type, extents, strides);
  }
  Tensor in_heads(AttentionOperand operand) {
    const std::int64_t position = d_.num_heads * d_.head_dim;
    return graph_.in_memory(id_of(operand), bf16_type, head_extents(d_.num_heads),
                            {d_.seq * position, d_.head_dim, position, 1});
  }
  Tensor statistic(AttentionOperand operand) {
    return graph_.in_memory(id_of(operand), f32_type, statistic_extents(), {d_.num_heads * d_.seq, d_.seq, 1, 1});
  }

  Tensor scores(const Tensor& q, const Tensor& k) {
    return scores(q, k, graph_.number(id_of(AttentionOperand::scale)));
  }
  Tensor scores(const Tensor& q, const Tensor& k, const Tensor& scale) {
    const Tensor products = between(score_extents());
    graph_.matmul(q, k, products);
    const Tensor scaled = between(score_extents());
    graph_.pointwise(CUDNN_POINTWISE_MUL, products, scale, scaled);
    return scaled;
  }
  /// @return x where the query is not before the key.
  Tensor hidden(const Tensor& x) {
    const Tensor query = graph_.between(CUDNN_DATA_INT32, score_extents());
    graph_.index(x, 2, query);
    const Tensor key = graph_.between(CUDNN_DATA_INT32, score_extents());
    graph_.index(x, 3, key);
    const Tensor seen = graph_.between(CUDNN_DATA_BOOLEAN, score_extents());
    graph_.compare(CUDNN_POINTWISE_CMP_GE, query, key, seen);
    const Tensor y = between(score_extents());
    graph_.select(x, graph_.number(id_of(AttentionOperand::minus_infinity)), seen, y);
    return y;
  }
  bool drops() const { return d_.dropout_probability != 0.0F; }
  Tensor masked(const Tensor& x, cudnnDataType_t type) {
    if (!drops()) return x;
    if (mask_.descriptor == nullptr) {
      const std::int64_t row = dropout_mask_row(d_);
      mask_ = graph_.in_memory(id_of(AttentionOperand::dropout_mask), bf16_type, score_extents(),
                               {d_.num_heads * d_.seq * row, d_.seq * row, row, 1});
    }
    const Tensor y = graph_.between(type, score_extents());
    graph_.pointwise(CUDNN_POINTWISE_MUL, x, mask_, y);
    return y;
  }
  Tensor scaled_up(const Tensor& x) {
    if (!drops()) return x;
    if (dropout_scale_.descriptor == nullptr) dropout_scale_ = graph_.number(id_of(AttentionOperand::dropout_scale));
    const Tensor y = between(score_extents());
    graph_.pointwise(CUDNN_POINTWISE_MUL, x, dropout_scale_, y);
    return y;
  }
  Tensor with_dropout(const Tensor& probability, cudnnDataType_t type) { return masked(scaled_up(probability), type); }
  /// weightsᵀ · values, summed over the query heads that share a key head.
  void gradient_of_keys(const Tensor& weights, const Tensor& values, AttentionOperand gradient) {
    const std::int64_t heads = d_.num_heads;
    const Tensor transposed =
        graph_.between(bf16_type, score_extents(), {heads * d_.seq * d_.seq, d_.seq * d_.seq, 1, d_.seq});
    graph_.reshape(weights, transposed);
    const Tensor result = in_qkv(gradient, d_.num_kv_heads);
    if (d_.num_heads == d_.num_kv_heads) {
      graph_.matmul(transposed, values, result);
      return;
    }
    const Tensor of_query_heads = graph_.between(bf16_type, head_extents(heads));
    graph_.matmul(transposed, values, of_query_heads);
    graph_.reduce(CUDNN_REDUCE_TENSOR_ADD, of_query_heads, result);
  }

  OperationGraph& graph_;
  AttentionDims d_;
  Tensor mask_;  ///< of those of the graph, where it has them
  Tensor dropout_scale_;
};

}  // namespace

AttentionPlan::AttentionPlan(const PlanDevice& device, AttentionPass pass, const AttentionDims& d, bool deterministic,
                             std::int64_t most_workspace_bytes) {
  const bool forward = pass == AttentionPass::forward;
  AttentionGraph attention(graph_, d);
  if (forward) {
    attention.forward();
  } else {
    attention.backward(deterministic);
  }
  const BackendDescriptor graph = graph_.finish(device.handle);

  auto [engine, error] = fastest_engine(device, graph, deterministic, most_workspace_bytes);
  if (engine) {
    plan_ = std::move(engine->plan);
    workspace_bytes_ = engine->workspace_bytes;
    return;
  }
  throw Unsupported(
      fmt::format("cuDNN has no{} {} of {} x {} positions, {} heads of {} elements and {} of keys within {} bytes: {}; "
                  "cuda.attention = \"strata\" serves",
                  !forward && deterministic ? " deterministic" : "", forward ? "attention" : "gradient of attention",
                  d.batch, d.seq, d.num_heads, d.head_dim, d.num_kv_heads, most_workspace_bytes, error));
}

}  // namespace strata::cuda
