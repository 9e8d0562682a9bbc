/// @file
/// Attention against a float64 reference with analytic gradients: both storage types, grouped heads, dropout, fused and
/// separate tensors, sizes that fill no vector; and equality bit for bit where threads, batch and heads are split.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "base/error.hpp"
#include "exec/cpu/kernels/attention.hpp"
#include "exec/cpu/kernels/storage.hpp"

namespace strata::cpu::test_attention {
namespace {

constexpr RandomStream mask_random{0x5eedULL, 0x9876543210ULL};

std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }

/// A tensor [batch, seq, heads, head_dim] in storage of its own type, with the doubles that it holds.
struct Tensor {
  DType dtype;
  std::int64_t tokens;
  std::int64_t width;       // heads * head_dim
  std::int64_t row_stride;  // width and a margin that nobody may write
  std::vector<std::byte> bytes;

  Tensor(DType type, std::int64_t num_tokens, std::int64_t row_width, std::int64_t margin)
      : dtype(type), tokens(num_tokens), width(row_width), row_stride(row_width + margin) {
    bytes.assign(size(tokens * row_stride * size_of(dtype)), std::byte{0x55});
  }
  double get(std::int64_t token, std::int64_t column) const {
    const std::int64_t at = token * row_stride + column;
    return dtype == DType::f32
               ? static_cast<double>(reinterpret_cast<const float*>(bytes.data())[at])
               : static_cast<double>(static_cast<float>(reinterpret_cast<const bf16*>(bytes.data())[at]));
  }
  void set(std::int64_t token, std::int64_t column, float value) {
    const std::int64_t at = token * row_stride + column;
    if (dtype == DType::f32) {
      reinterpret_cast<float*>(bytes.data())[at] = value;
    } else {
      reinterpret_cast<bf16*>(bytes.data())[at] = bf16(value);
    }
  }
  void fill_normal(std::uint64_t stream, float scale) {
    const RandomStream random{7, stream};
    for (std::int64_t i = 0; i < tokens * width; ++i) {
      set(i / width, i % width, scale * random.normal(static_cast<std::uint64_t>(i)));
    }
  }
  bool margin_untouched() const {
    const std::int64_t element = size_of(dtype);
    for (std::int64_t i = 0; i < tokens * row_stride * element; ++i) {
      if (i / element % row_stride >= width && bytes[size(i)] != std::byte{0x55}) {
        return false;
      }
    }
    return true;
  }
  const std::byte* at(std::int64_t token, std::int64_t column) const {
    return bytes.data() + (token * row_stride + column) * size_of(dtype);
  }
  std::byte* at(std::int64_t token, std::int64_t column) {
    return bytes.data() + (token * row_stride + column) * size_of(dtype);
  }
  ConstTokenRows rows(std::int64_t token = 0, std::int64_t column = 0) const { return {at(token, column), row_stride}; }
  TokenRows rows(std::int64_t token = 0, std::int64_t column = 0) { return {at(token, column), row_stride}; }
};

/// Aligned scratch of exactly the size asked for.
struct Workspace {
  explicit Workspace(std::int64_t num_bytes) : memory(size(num_bytes) + 64), count(size(num_bytes)) {}
  std::span<std::byte> span() {
    void* start = memory.data();
    std::size_t space = memory.size();
    return {static_cast<std::byte*>(std::align(64, count, start, space)), count};
  }
  std::vector<std::byte> memory;
  std::size_t count;
};

/// All tensors of a call.
struct Problem {
  AttentionDims dims;
  Tensor q, k, v, out, d_out, dq, dk, dv;
  std::vector<float> log_sum_exp;

  explicit Problem(const AttentionDims& d, float scale = 1.0F, std::int64_t margin = 3)
      : dims(d),
        q(d.dtype, d.batch * d.seq, d.num_heads * d.head_dim, margin),
        k(d.dtype, d.batch * d.seq, d.num_kv_heads * d.head_dim, margin),
        v(k),
        out(q),
        d_out(q),
        dq(q),
        dk(k),
        dv(k),
        log_sum_exp(size(d.batch * d.num_heads * d.seq) + 1, -3.0F) {
    q.fill_normal(1, scale);
    k.fill_normal(2, scale);
    v.fill_normal(3, 1.0F);
    d_out.fill_normal(4, 1.0F);
  }
  AttentionForwardOperands forward_operands() {
    return {.q = std::as_const(q).rows(),
            .k = std::as_const(k).rows(),
            .v = std::as_const(v).rows(),
            .y = out.rows(),
            .log_sum_exp = log_sum_exp.data()};
  }
  void forward() {
    Workspace workspace(attention_forward_workspace_bytes(dims));
    attention_forward(dims, forward_operands(), mask_random, workspace.span());
  }
  void backward() {
    Workspace workspace(attention_backward_workspace_bytes(dims));
    attention_backward(dims,
                       {.dy = std::as_const(d_out).rows(),
                        .q = std::as_const(q).rows(),
                        .k = std::as_const(k).rows(),
                        .v = std::as_const(v).rows(),
                        .y = std::as_const(out).rows(),
                        .log_sum_exp = log_sum_exp.data(),
                        .dq = dq.rows(),
                        .dk = dk.rows(),
                        .dv = dv.rows()},
                       mask_random, workspace.span());
  }
};

/// Dense [tokens, width] of doubles.
struct Reference {
  std::vector<double> out, log_sum_exp, dq, dk, dv;
};

Reference reference(const Problem& p) {
  const AttentionDims& d = p.dims;
  const std::int64_t seq = d.seq;
  const double scale = 1.0 / std::sqrt(static_cast<double>(d.head_dim));
  const double keep_scale = 1.0 / (1.0 - static_cast<double>(d.dropout_probability));
  Reference r;
  r.out.assign(size(p.q.tokens * p.q.width), 0.0);
  r.dq = r.out;
  r.dk.assign(size(p.k.tokens * p.k.width), 0.0);
  r.dv = r.dk;
  r.log_sum_exp.assign(size(d.batch * d.num_heads * seq), 0.0);
  const std::int64_t total = d.total_heads > 0 ? d.total_heads : d.num_heads;
  for (std::int64_t b = 0; b < d.batch; ++b) {
    for (std::int64_t h = 0; h < d.num_heads; ++h) {
      const std::int64_t q0 = h * d.head_dim;
      const std::int64_t k0 = h / (d.num_heads / d.num_kv_heads) * d.head_dim;
      for (std::int64_t i = 0; i < seq; ++i) {
        const std::int64_t t = b * seq + i;
        const std::int64_t visible = d.causal ? i + 1 : seq;
        std::vector<double> score(size(visible), 0.0);
        std::vector<double> probability(size(visible));
        std::vector<double> mask(size(visible), 1.0);
        std::vector<double> d_probability(size(visible), 0.0);
        for (std::int64_t j = 0; j < visible; ++j) {
          for (std::int64_t e = 0; e < d.head_dim; ++e) {
            score[size(j)] += scale * p.q.get(t, q0 + e) * p.k.get(b * seq + j, k0 + e);
          }
          if (d.dropout_probability > 0.0F) {
            const std::int64_t index = (((d.first_sample + b) * total + d.first_head + h) * seq + i) * seq + j;
            const bool keep = mask_random.uniform(static_cast<std::uint64_t>(index)) >= d.dropout_probability;
            mask[size(j)] = keep ? keep_scale : 0.0;
          }
        }
        const double maximum = *std::max_element(score.begin(), score.end());
        double sum = 0.0;
        for (const double s : score) {
          sum += std::exp(s - maximum);
        }
        const double lse = maximum + std::log(sum);
        r.log_sum_exp[size((b * d.num_heads + h) * seq + i)] = lse;
        double weighted = 0.0;
        for (std::int64_t j = 0; j < visible; ++j) {
          const double probability_j = std::exp(score[size(j)] - lse);
          probability[size(j)] = probability_j;
          for (std::int64_t e = 0; e < d.head_dim; ++e) {
            const double v = p.v.get(b * seq + j, k0 + e);
            const double d_out = p.d_out.get(t, q0 + e);
            r.out[size(t * p.q.width + q0 + e)] += probability_j * mask[size(j)] * v;
            r.dv[size((b * seq + j) * p.k.width + k0 + e)] += probability_j * mask[size(j)] * d_out;
            d_probability[size(j)] += mask[size(j)] * v * d_out;
          }
          weighted += probability_j * d_probability[size(j)];
        }
        for (std::int64_t j = 0; j < visible; ++j) {
          const double d_score = probability[size(j)] * (d_probability[size(j)] - weighted) * scale;
          for (std::int64_t e = 0; e < d.head_dim; ++e) {
            r.dq[size(t * p.q.width + q0 + e)] += d_score * p.k.get(b * seq + j, k0 + e);
            r.dk[size((b * seq + j) * p.k.width + k0 + e)] += d_score * p.q.get(t, q0 + e);
          }
        }
      }
    }
  }
  return r;
}

/// Norm of the difference over norm of the reference. @p floor keeps a reference that is zero (seq = 1: dq) from
/// dividing by it.
double relative_error(const Tensor& tensor, const std::vector<double>& expected, double floor) {
  double difference = 0.0;
  double norm = 0.0;
  for (std::int64_t i = 0; i < tensor.tokens * tensor.width; ++i) {
    const double value = tensor.get(i / tensor.width, i % tensor.width);
    difference += (value - expected[size(i)]) * (value - expected[size(i)]);
    norm += expected[size(i)] * expected[size(i)];
  }
  return std::sqrt(difference) / std::max(std::sqrt(norm), floor * std::sqrt(static_cast<double>(expected.size())));
}

struct Shape {
  std::int64_t batch, seq, heads, kv_heads, head_dim;
};
const Shape shapes[] = {{1, 1, 1, 1, 5},     {2, 5, 2, 1, 24},   {3, 33, 4, 2, 64},  {1, 130, 3, 3, 80},
                        {2, 130, 6, 2, 5},   {1, 64, 2, 2, 128}, {1, 200, 2, 1, 96}, {1, 129, 1, 1, 33},
                        {1, 257, 1, 1, 160}, {2, 17, 4, 4, 16}};

AttentionDims dims_of(const Shape& s, DType dtype, bool causal, float dropout) {
  AttentionDims dims;
  dims.batch = s.batch;
  dims.seq = s.seq;
  dims.num_heads = s.heads;
  dims.num_kv_heads = s.kv_heads;
  dims.head_dim = s.head_dim;
  dims.dtype = dtype;
  dims.causal = causal;
  dims.dropout_probability = dropout;
  return dims;
}

struct Case {
  DType dtype;
  bool causal;
  float dropout;
};
class AttentionAgainstReference : public testing::TestWithParam<Case> {};

TEST_P(AttentionAgainstReference, OutputsAndGradients) {
  const auto [dtype, causal, dropout] = GetParam();
  // f32: a few roundings of 2⁻²⁴ in every score, term and sum. bf16, unit roundoff u = 2⁻⁹: out has rounded
  // probabilities and is rounded itself, √2·u in the norm; gradients have rounded probabilities or score gradients, the
  // rounded out inside D, and their own rounding.
  const double roundoff = dtype == DType::f32 ? 0x1p-24 : 0x1p-9;
  const double out_bound = dtype == DType::f32 ? 16 * roundoff : 1.5 * roundoff;
  const double gradient_bound = dtype == DType::f32 ? 32 * roundoff : 2.5 * roundoff;
  for (const Shape& shape : shapes) {
    AttentionDims dims = dims_of(shape, dtype, causal, dropout);
    dims.first_sample = 3;
    dims.first_head = 2;
    dims.total_heads = shape.heads + 5;
    Problem p(dims);
    p.forward();
    p.backward();
    const Reference r = reference(p);
    SCOPED_TRACE(fmt::format("batch {} seq {} heads {}/{} dim {}", shape.batch, shape.seq, shape.heads, shape.kv_heads,
                             shape.head_dim));
    EXPECT_LT(relative_error(p.out, r.out, 0.1), out_bound);
    // One key: the gradients are zero, and what is left is the rounding of out inside D, times q and k of order one.
    const double score_floor = shape.seq == 1 ? 0.5 : 0.1;
    EXPECT_LT(relative_error(p.dq, r.dq, score_floor), gradient_bound);
    EXPECT_LT(relative_error(p.dk, r.dk, score_floor), gradient_bound);
    EXPECT_LT(relative_error(p.dv, r.dv, 0.1), gradient_bound);
    for (std::size_t i = 0; i < r.log_sum_exp.size(); ++i) {
      ASSERT_NEAR(static_cast<double>(p.log_sum_exp[i]), r.log_sum_exp[i], 2e-6) << i;
    }
    EXPECT_EQ(p.log_sum_exp.back(), -3.0F);
    for (const Tensor* written : {&p.out, &p.dq, &p.dk, &p.dv}) {
      EXPECT_TRUE(written->margin_untouched());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Attention, AttentionAgainstReference,
                         testing::Values(Case{DType::f32, true, 0.0F}, Case{DType::f32, false, 0.0F},
                                         Case{DType::f32, true, 0.25F}, Case{DType::f32, false, 0.1F},
                                         Case{DType::bf16, true, 0.0F}, Case{DType::bf16, false, 0.0F},
                                         Case{DType::bf16, true, 0.25F}, Case{DType::bf16, false, 0.1F}),
                         [](const auto& test) {
                           return fmt::format("{}_{}_dropout{}", to_string(test.param.dtype),
                                              test.param.causal ? "causal" : "full",
                                              static_cast<int>(100.0F * test.param.dropout));
                         });

TEST(Attention, LargeScoresDoNotOverflow) {
  // Scores of several hundred: only the subtracted maximum keeps exp finite. Their rounding, 2⁻²⁴ of 500, is the error.
  Problem p(dims_of({1, 70, 2, 2, 64}, DType::f32, true, 0.0F), 12.0F);
  p.forward();
  p.backward();
  const Reference r = reference(p);
  EXPECT_GT(*std::max_element(r.log_sum_exp.begin(), r.log_sum_exp.end()), 200.0);
  EXPECT_LT(relative_error(p.out, r.out, 0.1), 2e-4);
  EXPECT_LT(relative_error(p.dq, r.dq, 0.1), 2e-4);
  EXPECT_LT(relative_error(p.dk, r.dk, 0.1), 2e-4);
}

TEST(Attention, EqualScoresGiveExactMeans) {
  // q = 0 makes all probabilities 1/128, and small integers in v keep every sum exact, with dropout of 1/2 too: 2 · Σ
  // kept v / 128.
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const float dropout : {0.0F, 0.5F}) {
      Problem p(dims_of({1, 128, 2, 1, 20}, dtype, false, dropout));
      for (std::int64_t t = 0; t < 128; ++t) {
        for (std::int64_t c = 0; c < p.q.width; ++c) {
          p.q.set(t, c, 0.0F);
        }
        for (std::int64_t c = 0; c < p.v.width; ++c) {
          p.v.set(t, c, static_cast<float>((t * 7 + c * 5) % 17 - 8));
        }
      }
      p.forward();
      Tensor expected = p.out;
      for (std::int64_t i = 0; i < 128; ++i) {
        for (std::int64_t c = 0; c < p.out.width; ++c) {
          double sum = 0.0;
          for (std::int64_t j = 0; j < 128; ++j) {
            const auto index = static_cast<std::uint64_t>((c / 20 * 128 + i) * 128 + j);
            const double keep = dropout == 0.0F ? 1.0 : (mask_random.uniform(index) >= dropout ? 2.0 : 0.0);
            sum += keep * p.v.get(j, c % 20);
          }
          expected.set(i, c, static_cast<float>(sum / 128.0));
        }
      }
      EXPECT_EQ(p.out.bytes, expected.bytes) << to_string(dtype) << ", dropout " << dropout;
    }
  }
}

TEST(Attention, LaterTokensChangeNothingEarlier) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Problem p(dims_of({1, 150, 2, 2, 24}, dtype, true, 0.1F));
    p.forward();
    Problem changed = p;
    constexpr std::int64_t first = 77;
    for (std::int64_t t = first; t < 150; ++t) {
      for (std::int64_t c = 0; c < p.k.width; ++c) {
        changed.k.set(t, c, 1e3F * static_cast<float>(c - 20));
        changed.v.set(t, c, -1e4F);
      }
    }
    changed.forward();
    const auto earlier = static_cast<std::size_t>(p.out.at(first, 0) - p.out.at(0, 0));
    EXPECT_EQ(std::memcmp(p.out.at(0, 0), changed.out.at(0, 0), earlier), 0);
    EXPECT_NE(std::memcmp(p.out.at(first, 0), changed.out.at(first, 0), p.out.bytes.size() - earlier), 0);
  }
}

/// Runs forward and backward on pieces of the batch and of the groups of heads, through pointers into the whole
/// tensors.
void run_in_pieces(Problem& p) {
  const AttentionDims& d = p.dims;
  const std::int64_t group = d.num_heads / d.num_kv_heads;
  for (std::int64_t b = 0; b < d.batch; ++b) {
    for (std::int64_t kv = 0; kv < d.num_kv_heads; ++kv) {
      AttentionDims piece = d;
      piece.batch = 1;
      piece.num_heads = group;
      piece.num_kv_heads = 1;
      piece.first_sample = d.first_sample + b;
      piece.first_head = d.first_head + kv * group;
      piece.total_heads = d.total_heads;
      const std::int64_t t = b * d.seq;
      const std::int64_t qc = kv * group * d.head_dim;
      const std::int64_t kc = kv * d.head_dim;
      float* const lse = p.log_sum_exp.data() + (b * d.num_heads + kv * group) * d.seq;
      const Problem& c = p;
      Workspace forward(attention_forward_workspace_bytes(piece));
      attention_forward(piece,
                        {.q = c.q.rows(t, qc),
                         .k = c.k.rows(t, kc),
                         .v = c.v.rows(t, kc),
                         .y = p.out.rows(t, qc),
                         .log_sum_exp = lse},
                        mask_random, forward.span());
      Workspace backward(attention_backward_workspace_bytes(piece));
      attention_backward(piece,
                         {.dy = c.d_out.rows(t, qc),
                          .q = c.q.rows(t, qc),
                          .k = c.k.rows(t, kc),
                          .v = c.v.rows(t, kc),
                          .y = c.out.rows(t, qc),
                          .log_sum_exp = lse,
                          .dq = p.dq.rows(t, qc),
                          .dk = p.dk.rows(t, kc),
                          .dv = p.dv.rows(t, kc)},
                         mask_random, backward.span());
    }
  }
}

TEST(Attention, ThreadsAndPiecesGiveEqualBits) {
  const int threads_before = omp_get_max_threads();
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const bool causal : {true, false}) {
      AttentionDims dims = dims_of({3, 100, 6, 3, 40}, dtype, causal, 0.2F);
      dims.first_sample = 11;
      dims.first_head = 6;
      dims.total_heads = 18;
      omp_set_num_threads(1);
      Problem once(dims);
      once.forward();
      once.backward();
      for (const int threads : {1, 2, 3}) {
        for (const bool pieces : {false, true}) {
          omp_set_num_threads(threads);
          Problem again(dims);
          if (pieces) {
            run_in_pieces(again);
          } else {
            again.forward();
            again.backward();
          }
          EXPECT_EQ(again.out.bytes, once.out.bytes);
          EXPECT_EQ(again.log_sum_exp, once.log_sum_exp);
          EXPECT_EQ(again.dq.bytes, once.dq.bytes);
          EXPECT_EQ(again.dk.bytes, once.dk.bytes);
          EXPECT_EQ(again.dv.bytes, once.dv.bytes);
        }
      }
    }
  }
  omp_set_num_threads(threads_before);
}

TEST(Attention, FusedActivationAndGradientsInPlace) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const AttentionDims dims = dims_of({2, 75, 4, 2, 24}, dtype, true, 0.1F);
    Problem separate(dims);
    separate.forward();
    separate.backward();
    const std::int64_t q_width = separate.q.width;
    const std::int64_t k_width = separate.k.width;
    Tensor qkv(dtype, separate.q.tokens, q_width + 2 * k_width, 0);
    Tensor gradients = qkv;
    for (std::int64_t t = 0; t < qkv.tokens; ++t) {
      const auto copy = [&](Tensor& to, const Tensor& q, const Tensor& k, const Tensor& v) {
        std::memcpy(to.at(t, 0), q.at(t, 0), size(q_width * size_of(dtype)));
        std::memcpy(to.at(t, q_width), k.at(t, 0), size(k_width * size_of(dtype)));
        std::memcpy(to.at(t, q_width + k_width), v.at(t, 0), size(k_width * size_of(dtype)));
      };
      copy(qkv, separate.q, separate.k, separate.v);
      copy(gradients, separate.dq, separate.dk, separate.dv);
    }
    const Tensor& input = qkv;
    Tensor out = separate.q;
    Workspace forward(attention_forward_workspace_bytes(dims));
    attention_forward(dims,
                      {.q = input.rows(),
                       .k = input.rows(0, q_width),
                       .v = input.rows(0, q_width + k_width),
                       .y = out.rows(),
                       .log_sum_exp = separate.log_sum_exp.data()},
                      mask_random, forward.span());
    for (std::int64_t t = 0; t < out.tokens; ++t) {
      ASSERT_EQ(std::memcmp(out.at(t, 0), separate.out.at(t, 0), size(q_width * size_of(dtype))), 0);
    }
    Workspace backward(attention_backward_workspace_bytes(dims));
    attention_backward(dims,
                       {.dy = std::as_const(separate.d_out).rows(),
                        .q = input.rows(),
                        .k = input.rows(0, q_width),
                        .v = input.rows(0, q_width + k_width),
                        .y = std::as_const(out).rows(),
                        .log_sum_exp = separate.log_sum_exp.data(),
                        .dq = qkv.rows(),
                        .dk = qkv.rows(0, q_width),
                        .dv = qkv.rows(0, q_width + k_width)},
                       mask_random, backward.span());
    EXPECT_EQ(qkv.bytes, gradients.bytes);
  }
}

TEST(Attention, NaNReachesItsRow) {
  Problem p(dims_of({1, 40, 1, 1, 16}, DType::f32, true, 0.0F));
  p.q.set(21, 3, std::numeric_limits<float>::quiet_NaN());
  p.forward();
  for (std::int64_t t = 0; t < 40; ++t) {
    EXPECT_EQ(std::isnan(p.out.get(t, 0)), t == 21) << t;
  }
}

TEST(Attention, RefusesWrongDims) {
  AttentionDims dims = dims_of({1, 4, 3, 2, 8}, DType::f32, true, 0.0F);
  EXPECT_THROW(attention_forward_workspace_bytes(dims), InternalError);
  dims.num_kv_heads = 3;
  EXPECT_GT(attention_forward_workspace_bytes(dims), 0);
  Problem p(dims);
  p.dims.dropout_probability = 1.0F;
  EXPECT_THROW(p.forward(), InternalError);
  p.dims.dropout_probability = 0.0F;
  p.q.row_stride = 23;
  EXPECT_THROW(p.forward(), InternalError);
  p.q.row_stride = 27;
  EXPECT_THROW(attention_forward(dims, p.forward_operands(), mask_random, {}), InternalError);
}

}  // namespace
}  // namespace strata::cpu::test_attention
