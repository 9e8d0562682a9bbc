/// @file
/// Every kernel of the table on the GPU against the CPU's, on sizes that divide nothing and on operands that begin
/// anywhere. Bounds: f32 sums in another order; bf16 results rounded once, of f32 sums.

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "base/quantization.hpp"
#include "cuda/device_test.hpp"
#include "exec/cpu/kernels/quantize.hpp"
#include "exec/cuda/kernels/optimizer.hpp"
#include "ir/model/model_graph.hpp"

namespace strata {
namespace {

constexpr double close_f32 = 1e-5;
constexpr double close_bf16 = 4e-3;
constexpr DType f32 = DType::f32;

std::int64_t operator""_i(unsigned long long value) { return static_cast<std::int64_t>(value); }

INSTANTIATE_TEST_SUITE_P(Dtypes, DeviceTest, testing::Values(DType::f32, DType::bf16),
                         [](const auto& test) { return std::string(to_string(test.param)); });

TEST_P(DeviceTest, LinearForward) {
  for (const bool bias : {false, true}) {
    for (const std::int64_t offset : {0, 1}) {
      OneKernel k(Kernel::linear_forward, {{"rows", 33_i}, {"in", 65_i}, {"out", 31_i}});
      k.input(GetParam(), 33 * 65).input(GetParam(), 65 * 31, 1.0, offset);
      if (bias) k.input(GetParam(), 31, 1.0, offset);
      expect_close(k.output(GetParam(), 33 * 31).run(), close_f32, close_bf16);
    }
  }
}

TEST_P(DeviceTest, LinearForwardOfWholeTiles) {
  OneKernel k(Kernel::linear_forward, {{"rows", 128_i}, {"in", 256_i}, {"out", 512_i}});
  k.input(GetParam(), 128 * 256).input(GetParam(), 256 * 512).input(GetParam(), 512).output(GetParam(), 128 * 512);
  expect_close(k.run(), close_f32, close_bf16);
}

/// In the epilogue of the product, and in a pass behind it: of rows that are no vectors, of operands that begin
/// elsewhere. On a GPU also that cuBLASLt's GELU is the one in tanh form.
TEST_P(DeviceTest, LinearForwardWithGelu) {
  for (const std::int64_t out : {64, 31}) {
    for (const std::int64_t offset : {0, 1}) {
      for (const bool bias : {false, true}) {
        for (const bool is_kept : {false, true}) {
          OneKernel k(Kernel::linear_forward, {{"rows", 33_i}, {"in", 65_i}, {"out", out}, {"gelu", 1_i}});
          k.input(GetParam(), 33 * 65).input(GetParam(), 65 * out);
          if (bias) k.input(GetParam(), out, 1.0, offset);
          k.output(GetParam(), 33 * out);
          if (is_kept) k.output(GetParam(), 33 * out, offset);
          expect_close(k.run(), close_f32, 2 * close_bf16);  // the CPU rounds what GELU is applied to
        }
      }
    }
  }
}

TEST_P(DeviceTest, LinearBackwardInputThroughGelu) {
  for (const std::int64_t in : {64, 31}) {
    for (const std::int64_t offset : {0, 1}) {
      OneKernel k(Kernel::linear_backward_input,
                  {{"rows", 33_i}, {"in", in}, {"out", 65_i}, {"accumulate", 0_i}, {"gelu", 1_i}});
      k.input(GetParam(), 33 * 65).input(GetParam(), 65 * in).input(GetParam(), 33 * in, 3.0, offset);
      expect_close(k.output(GetParam(), 33 * in).run(), close_f32, 2 * close_bf16);
    }
  }
}

/// Rows of y and dy apart, as those of logits are. What stands between them stays: outputs are compared whole.
TEST_P(DeviceTest, LinearWithOutputRowsApart) {
  struct Sizes {
    std::int64_t in, out, ld;
  };
  // The second has outputs enough to be computed in two parts, whole vectors and the rest (product_parts.hpp).
  for (const auto [in, out, ld] : {Sizes{65, 29, 32}, Sizes{72, 547, 552}}) {
    const Attributes sizes = {{"rows", 33_i}, {"in", in}, {"out", out}, {"ld", ld}};
    OneKernel forward(Kernel::linear_forward, sizes);
    forward.input(GetParam(), 33 * in).input(GetParam(), in * out).output(GetParam(), 33 * ld);
    expect_close(forward.run(), close_f32, close_bf16);
    for (const std::int64_t add : {0, 1}) {
      Attributes adding = sizes;
      adding.set("accumulate", add);
      OneKernel input(Kernel::linear_backward_input, adding);
      input.input(GetParam(), 33 * ld).input(GetParam(), in * out).output(GetParam(), 33 * in);
      expect_close(input.run(), close_f32, close_bf16);
      OneKernel weight(Kernel::linear_backward_weight, adding);
      weight.input(GetParam(), 33 * in).input(GetParam(), 33 * ld).output(f32, in * out);
      expect_close(weight.run(), close_f32, close_bf16);
    }
  }
}

TEST_P(DeviceTest, LinearBackwardInput) {
  for (const std::int64_t add : {0, 1}) {
    OneKernel k(Kernel::linear_backward_input, {{"rows", 33_i}, {"in", 65_i}, {"out", 31_i}, {"accumulate", add}});
    k.input(GetParam(), 33 * 31).input(GetParam(), 65 * 31).output(GetParam(), 33 * 65);
    expect_close(k.run(), close_f32, close_bf16);
  }
}

TEST_P(DeviceTest, LinearBackwardWeight) {
  for (const std::int64_t add : {0, 1, 3}) {
    for (const std::int64_t offset : {0, 1}) {  // of the bias: with the product, where nothing is added, and beside it
      for (const DType gradient : {f32, GetParam()}) {
        OneKernel k(Kernel::linear_backward_weight,
                    {{"rows", 300_i}, {"in", 65_i}, {"out", 31_i}, {"accumulate", add}});
        k.input(GetParam(), 300 * 65).input(GetParam(), 300 * 31);
        k.output(gradient, 65 * 31, 3).output(gradient, 31, offset);
        expect_close(k.run(), close_f32, close_bf16);
      }
    }
  }
}

/// Rows and widths: rows that share a block; rows of a warp each, of one to four turns; more columns than threads
/// in one, two, four and eight turns.
constexpr std::pair<std::int64_t, std::int64_t> norm_shapes[] = {{300, 77}, {13, 80},  {41, 511}, {9, 768},  {10, 1024},
                                                                 {3, 1025}, {3, 4104}, {3, 9001}, {2, 17000}};

TEST_P(DeviceTest, LayerNorm) {
  for (const auto& [rows, width] : norm_shapes) {
    const std::int64_t n = rows * width;
    OneKernel forward(Kernel::layer_norm_forward, {{"rows", rows}, {"width", width}, {"epsilon", 1e-5}});
    forward.input(GetParam(), n).input(GetParam(), width).input(GetParam(), width);
    expect_close(forward.output(GetParam(), n).output(f32, 2 * rows).run(), close_f32, close_bf16);
    for (const std::int64_t offset : {0, 1}) {
      OneKernel sum(Kernel::layer_norm_forward, {{"rows", rows}, {"width", width}, {"epsilon", 1e-5}, {"adds", 1_i}});
      sum.input(GetParam(), n).input(GetParam(), width).input(GetParam(), width).input(GetParam(), n, 1.0, offset);
      expect_close(sum.output(GetParam(), n).output(f32, 2 * rows).output_is_input(0).run(), close_f32, close_bf16);
    }
    for (const std::int64_t add : {0, 5}) {
      OneKernel k(Kernel::layer_norm_backward,
                  {{"rows", rows}, {"width", width}, {"epsilon", 1e-5}, {"accumulate", add}});
      k.input(GetParam(), n).input(GetParam(), n).input(GetParam(), width).positive(2 * rows);
      expect_close(k.output(GetParam(), n).output(f32, width).output(f32, width).run(), close_f32, close_bf16);
    }
  }
}

TEST_P(DeviceTest, RmsNorm) {
  for (const auto& [rows, width] : norm_shapes) {
    const std::int64_t n = rows * width;
    OneKernel forward(Kernel::rms_norm_forward, {{"rows", rows}, {"width", width}, {"epsilon", 1e-5}});
    forward.input(GetParam(), n).input(GetParam(), width).output(GetParam(), n).output(f32, rows);
    expect_close(forward.run(), close_f32, close_bf16);
    OneKernel sum(Kernel::rms_norm_forward, {{"rows", rows}, {"width", width}, {"epsilon", 1e-5}, {"adds", 1_i}});
    sum.input(GetParam(), n).input(GetParam(), width).input(GetParam(), n);
    expect_close(sum.output(GetParam(), n).output(f32, rows).output_is_input(2).run(), close_f32, close_bf16);
    for (const std::int64_t add : {0, 3}) {
      OneKernel k(Kernel::rms_norm_backward,
                  {{"rows", rows}, {"width", width}, {"epsilon", 1e-5}, {"accumulate", add}});
      k.input(GetParam(), n).input(GetParam(), n).input(GetParam(), width).positive(rows);
      expect_close(k.output(GetParam(), n).output(GetParam(), width).run(), close_f32, close_bf16);
    }
  }
}

TEST_P(DeviceTest, BatchNorm) {
  OneKernel forward(Kernel::batch_norm_forward, {{"rows", 700_i}, {"channels", 19_i}, {"epsilon", 1e-5}});
  forward.input(GetParam(), 700 * 19).input(GetParam(), 19).input(GetParam(), 19);
  expect_close(forward.output(GetParam(), 700 * 19).output(f32, 38).run(), close_f32, close_bf16);
  OneKernel k(Kernel::batch_norm_backward,
              {{"rows", 700_i}, {"channels", 19_i}, {"epsilon", 1e-5}, {"accumulate", 6_i}});
  k.input(GetParam(), 700 * 19).input(GetParam(), 700 * 19).input(GetParam(), 19).positive(38);
  expect_close(k.output(GetParam(), 700 * 19).output(f32, 19).output(f32, 19).run(), close_f32, close_bf16);
}

TEST_P(DeviceTest, RunningStatisticsAndWhatEvaluationMakesOfThem) {
  OneKernel update(Kernel::running_statistics,
                   {{"rows", 700_i}, {"channels", 19_i}, {"epsilon", 1e-5}, {"decay", 0.81}, {"weight", 0.09}});
  expect_close(update.positive(38).output(f32, 19).positive_output(19).run(), close_f32, close_bf16);
  OneKernel k(Kernel::batch_norm_inference, {{"rows", 701_i}, {"channels", 19_i}, {"epsilon", 1e-5}});
  k.input(GetParam(), 701 * 19).input(GetParam(), 19).input(GetParam(), 19).input(f32, 19).positive(19);
  expect_close(k.output(GetParam(), 701 * 19).run(), close_f32, close_bf16);
}

TEST_P(DeviceTest, TopK) {
  for (const std::int64_t classes : {2, 5, 1501}) {
    OneKernel k(Kernel::top_k, {{"rows", 9_i}, {"classes", classes}});
    std::vector<std::int32_t> targets;
    for (std::int32_t row = 0; row < 9; ++row) targets.push_back(row == 4 ? -1 : row * 7 % static_cast<int>(classes));
    k.input(GetParam(), 9 * classes).given(DType::i32, targets);
    expect_close(k.output(f32, 9).output(f32, 9).output(f32, 9).run(), close_f32, close_bf16);
  }
}

Attributes attention_attributes(std::int64_t seq, std::int64_t causal, double dropout) {
  return {{"samples", 2_i},  {"first_sample", 3_i}, {"sequence", seq},  {"heads", 4_i},
          {"kv_heads", 2_i}, {"head_dim", 24_i},    {"causal", causal}, {"dropout", dropout}};
}

constexpr StepContext third_step{.step = 3, .learning_rate = 0.01};
constexpr cuda::Numerics our_attention{.attention = cuda::AttentionKernels::strata};

TEST_P(DeviceTest, AttentionForward) {
  for (const std::int64_t seq : {1, 32, 77}) {
    for (const std::int64_t causal : {0, 1}) {
      for (const double dropout : {0.0, 0.25}) {
        OneKernel k(Kernel::attention_forward, attention_attributes(seq, causal, dropout));
        k.input(GetParam(), 2 * seq * 8 * 24).output(GetParam(), 2 * seq * 4 * 24).output(f32, 2 * 4 * seq);
        expect_close(k.run(third_step, our_attention), close_f32, close_bf16);
      }
    }
  }
}

TEST_P(DeviceTest, AttentionBackward) {
  for (const std::int64_t seq : {1, 32, 77}) {
    for (const std::int64_t causal : {0, 1}) {
      for (const double dropout : {0.0, 0.25}) {
        // Any statistics will do: both read the same ones.
        OneKernel k(Kernel::attention_backward, attention_attributes(seq, causal, dropout));
        k.input(GetParam(), 2 * seq * 4 * 24).input(GetParam(), 2 * seq * 8 * 24).input(GetParam(), 2 * seq * 4 * 24);
        k.positive(2 * 4 * seq).output(GetParam(), 2 * seq * 8 * 24);
        // The CPU rounds probabilities to bf16 before it multiplies.
        expect_close(k.run(third_step, our_attention), 3e-5, 1e-2);
      }
    }
  }
}

/// Heads, heads of keys, their size, positions.
class FusedAttentionTest : public testing::TestWithParam<std::array<std::int64_t, 4>> {
 protected:
  void SetUp() override {
    cuda::set_environment(/*num_nccl_ranks=*/1);
    if (cuda::num_devices() == 0) GTEST_SKIP() << "no GPU";
  }
  static constexpr std::int64_t samples = 2;
  static constexpr DType bf16_type = DType::bf16;
  OneKernel forward(std::int64_t causal, double dropout) const {
    const auto [heads, kv_heads, head_dim, seq] = GetParam();
    OneKernel k(Kernel::attention_forward, attributes(causal, dropout));
    k.input(bf16_type, samples * seq * (heads + 2 * kv_heads) * head_dim, 2.0);
    k.output(bf16_type, samples * seq * heads * head_dim).output(f32, samples * heads * seq);
    return k;
  }
  OneKernel backward(std::int64_t causal, double dropout) const {
    const auto [heads, kv_heads, head_dim, seq] = GetParam();
    const std::int64_t out = samples * seq * heads * head_dim;
    const std::int64_t in = samples * seq * (heads + 2 * kv_heads) * head_dim;
    OneKernel k(Kernel::attention_backward, attributes(causal, dropout));
    // Any statistics will do: both read the same ones.
    k.input(bf16_type, out).input(bf16_type, in).input(bf16_type, out).positive(samples * heads * seq);
    k.output(bf16_type, in);
    return k;
  }
  static constexpr cuda::Numerics of_cudnn(bool deterministic) {
    return {.deterministic = deterministic, .attention = cuda::AttentionKernels::cudnn};
  }

 private:
  Attributes attributes(std::int64_t causal, double dropout) const {
    const auto [heads, kv_heads, head_dim, seq] = GetParam();
    return {{"samples", samples},   {"first_sample", 3_i},  {"sequence", seq},  {"heads", heads},
            {"kv_heads", kv_heads}, {"head_dim", head_dim}, {"causal", causal}, {"dropout", dropout}};
  }
};

INSTANTIATE_TEST_SUITE_P(
    Shapes, FusedAttentionTest,
    testing::Values(std::array<std::int64_t, 4>{4, 4, 64, 64}, std::array<std::int64_t, 4>{4, 2, 64, 77},
                    std::array<std::int64_t, 4>{2, 2, 128, 129}, std::array<std::int64_t, 4>{6, 1, 128, 33},
                    std::array<std::int64_t, 4>{3, 3, 24, 130}, std::array<std::int64_t, 4>{2, 1, 80, 2}));

TEST_P(FusedAttentionTest, IsTheCpus) {
  for (const std::int64_t causal : {0, 1}) {
    for (const double dropout : {0.0, 0.25}) {
      // Probabilities are rounded to bf16 before they are multiplied, here and on the CPU, at different places. The
      // logarithm of sums is of approximate exponentials.
      expect_close(forward(causal, dropout).run(third_step, of_cudnn(false)), 1e-4, 1e-2);
      for (const bool deterministic : {false, true}) {
        expect_close(backward(causal, dropout).run(third_step, of_cudnn(deterministic)), close_f32, 1e-2);
      }
    }
  }
}

TEST_P(FusedAttentionTest, HasEqualBitsTwiceWhereDeterministic) {
  for (const std::int64_t causal : {0, 1}) {
    for (OneKernel k : {forward(causal, 0.25), backward(causal, 0.25)}) {
      EXPECT_EQ(k.run(third_step, of_cudnn(true)).cuda, k.run(third_step, of_cudnn(true)).cuda);
    }
  }
}

/// Heads of whole packs, whose halves are one, and of others; somewhere in memory; in place.
TEST_P(DeviceTest, Rotary) {
  for (const Kernel kernel : {Kernel::rotary_forward, Kernel::rotary_backward}) {
    for (const std::int64_t head_dim : {14, 16, 48}) {
      const auto rotary = [&] {
        return OneKernel(kernel, {{"samples", 2_i},
                                  {"sequence", 11_i},
                                  {"heads", 3_i},
                                  {"kv_heads", 1_i},
                                  {"head_dim", head_dim},
                                  {"theta", 10000.0}});
      };
      const std::int64_t n = 2 * 11 * 5 * head_dim;
      for (const std::int64_t offset : {0, 1}) {
        OneKernel k = rotary();
        k.input(GetParam(), n, 1.0, offset).output(GetParam(), n, offset);
        expect_close(k.run(), 1e-6, close_bf16);
      }
      OneKernel in_place = rotary();
      in_place.input(GetParam(), n).output_is_input(0);
      expect_close(in_place.run(), 1e-6, close_bf16);
    }
  }
}

TEST_P(DeviceTest, Elementwise) {
  for (const std::int64_t offset : {0, 1}) {  // vectors of eight, and one by one
    const std::int64_t n = 1037;
    for (const Kernel kernel : {Kernel::gelu_forward, Kernel::gelu_erf_forward, Kernel::relu_forward}) {
      OneKernel k(kernel, {{"elements", n}});
      expect_close(k.input(GetParam(), n, 3.0, offset).output(GetParam(), n).run(), close_f32, close_bf16);
    }
    for (const Kernel kernel : {Kernel::gelu_backward, Kernel::gelu_erf_backward, Kernel::relu_backward, Kernel::add}) {
      OneKernel k(kernel, {{"elements", n}});
      k.input(GetParam(), n, 3.0, offset).input(GetParam(), n, 3.0).output(GetParam(), n);
      expect_close(k.run(), close_f32, close_bf16);
    }
    for (const DType from : {DType::f32, DType::bf16}) {
      OneKernel copy(Kernel::copy, {{"elements", n}});
      expect_equal(copy.input(from, n, 3.0, offset).output(GetParam(), n).run());
      OneKernel accumulate(Kernel::accumulate, {{"elements", n}});
      expect_equal(accumulate.input(from, n, 3.0, offset).output(GetParam(), n).run());
    }
  }
}

TEST_P(DeviceTest, InPlace) {
  OneKernel gelu(Kernel::gelu_backward, {{"elements", 1037_i}});
  gelu.input(GetParam(), 1037).input(GetParam(), 1037).output_is_input(0);
  expect_close(gelu.run(), close_f32, close_bf16);
  OneKernel dropout(Kernel::dropout_forward, {{"elements", 1037_i}, {"first_element", 5_i}, {"probability", 0.25}});
  expect_equal(dropout.input(GetParam(), 1037).output_is_input(0).run());
}

TEST_P(DeviceTest, Swiglu) {
  for (const std::int64_t width : {64, 37}) {
    OneKernel forward(Kernel::swiglu_forward, {{"rows", 11_i}, {"width", width}});
    forward.input(GetParam(), 22 * width, 3.0).output(GetParam(), 11 * width);
    expect_close(forward.run(), close_f32, close_bf16);
    OneKernel backward(Kernel::swiglu_backward, {{"rows", 11_i}, {"width", width}});
    backward.input(GetParam(), 11 * width).input(GetParam(), 22 * width, 3.0).output(GetParam(), 22 * width);
    expect_close(backward.run(), close_f32, close_bf16);
  }
}

TEST_P(DeviceTest, DropoutDropsTheElementsThatTheCpuDrops) {
  for (const Kernel kernel : {Kernel::dropout_forward, Kernel::dropout_backward}) {
    for (const std::int64_t first : {0_i, 7_i, std::int64_t{1} << 33}) {
      OneKernel k(kernel, {{"elements", 1037_i}, {"first_element", first}, {"probability", 0.1}});
      expect_equal(k.input(GetParam(), 1037).output(GetParam(), 1037).run());
    }
  }
}

/// Runs of 6, and of 24, which whole vectors are; 3 outer and 2 · 5 inner ones.
Attributes runs(std::int64_t run) {
  return {{"elements", 30 * run}, {"run", run},         {"size0", 3_i}, {"stride0", 12 * run},
          {"size1", 2_i},         {"stride1", 5 * run}, {"size2", 5_i}, {"stride2", run}};
}

TEST_P(DeviceTest, DropoutOfSplitFeaturesDropsTheElementsThatTheCpuDrops) {
  for (const Kernel kernel : {Kernel::dropout_forward, Kernel::dropout_backward}) {
    for (const std::int64_t run : {1_i, 6_i, 24_i}) {
      for (const std::int64_t offset : {0, 1}) {
        Attributes attributes = runs(run);
        attributes.set("first_element", (std::int64_t{1} << 33) + 7);
        attributes.set("probability", 0.25);
        OneKernel k(kernel, attributes);
        expect_equal(k.input(GetParam(), 30 * run, 1.0, offset).output(GetParam(), 30 * run).run());
      }
    }
  }
}

TEST_P(DeviceTest, Permute) {
  // Pieces of every size: by the length of the runs, and by where x and y begin.
  for (const std::int64_t run : {1_i, 2_i, 6_i, 24_i, 600_i}) {
    for (const std::int64_t first : {0_i, 1_i, 8_i}) {
      for (const std::int64_t offset : {0, 1, 2}) {
        Attributes attributes = runs(run);
        attributes.set("first", first);
        OneKernel k(Kernel::permute, attributes);
        expect_equal(k.input(GetParam(), first + 36 * run, 1.0, offset).output(GetParam(), 30 * run, offset).run());
      }
    }
  }
  OneKernel rows_exchanged(Kernel::permute, {{"elements", 35_i * 8},
                                             {"first", 0_i},
                                             {"run", 8_i},
                                             {"size0", 5_i},
                                             {"stride0", 8_i},
                                             {"size1", 7_i},
                                             {"stride1", 40_i}});
  expect_equal(rows_exchanged.input(GetParam(), 280).output(GetParam(), 280).run());
  OneKernel neighbours(Kernel::permute, {{"elements", 1037_i}, {"first", 5_i}});
  expect_equal(neighbours.input(GetParam(), 1042).output(GetParam(), 1037, 3).run());
  // 3 rows, in each 2 runs and the half of one, taken out of rows of 11 runs and put back.
  for (const std::int64_t run : {2_i, 16_i}) {
    Attributes attributes = {
        {"elements", 15 * run / 2}, {"first", run},           {"run", run},   {"size0", 3_i},
        {"stride0", 11 * run},      {"period0", 5 * run / 2}, {"size1", 3_i}, {"stride1", 4 * run}};
    OneKernel taken(Kernel::permute, attributes);
    expect_equal(taken.input(GetParam(), 33 * run).output(GetParam(), 15 * run / 2).run());
    attributes.set("scatters", 1);
    OneKernel put_back(Kernel::permute, attributes);
    expect_equal(put_back.input(GetParam(), 15 * run / 2).output(GetParam(), 33 * run).run());
  }
}

Attributes quantized_attributes(const QuantizedDims& d) {
  return {
      {"elements", d.elements}, {"chunk", d.chunk}, {"chunks", d.chunks}, {"block", d.block}, {"bits", d.bits + 0_i}};
}

TEST_P(DeviceTest, QuantizeGivesTheCpusCodes) {
  for (const int bits : {8, 4}) {
    for (const std::int64_t block : {16, 256, 1024}) {
      for (const std::int64_t chunk : {1_i, 33_i, 520_i, 2100_i}) {
        // The last of six chunks is short, and in one case not there at all.
        for (const std::int64_t elements : {6 * chunk, 5 * chunk + chunk / 3, 4 * chunk + 1}) {
          const QuantizedDims d{.elements = elements, .chunk = chunk, .chunks = 6, .block = block, .bits = bits};
          Attributes attributes = quantized_attributes(d);
          attributes.set("nodes", 2_i);
          OneKernel k(Kernel::quantize, attributes);
          k.input(GetParam(), elements, 3.0, chunk % 2);
          expect_equal(k.output(DType::u8, 6 * quantized_bytes(chunk, bits, block)).run());
        }
      }
    }
  }
}

TEST_P(DeviceTest, QuantizeOfZerosTiesAndWhatIsNotFinite) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  // Blocks of zeros; of numbers in the middle between two codes; with an infinity; with a NaN; of tiny numbers;
  // and a short one with an infinity, behind whose codes there is room.
  std::vector<float> x(16, 0.0F);
  for (int i = 0; i < 16; ++i) x.push_back(i == 0 ? 127.0F : static_cast<float>(i) - 7.5F);
  for (int i = 0; i < 16; ++i) x.push_back(i == 3 ? -infinity : 1.0F);
  for (int i = 0; i < 16; ++i) x.push_back(i == 3 ? infinity : i == 9 ? nan : 1.0F);
  for (int i = 0; i < 16; ++i) x.push_back(static_cast<float>(i) * 1e-39F);
  for (int i = 0; i < 13; ++i) x.push_back(i == 5 ? infinity : 1.0F);
  const auto n = static_cast<std::int64_t>(x.size());
  for (const int bits : {8, 4}) {
    Attributes attributes = quantized_attributes({.elements = n, .chunk = n, .block = 16, .bits = bits});
    attributes.set("nodes", 1_i);
    OneKernel k(Kernel::quantize, attributes);
    if (GetParam() == f32) {
      k.given(f32, x);
    } else {
      k.given(DType::bf16, std::vector<bf16>(x.begin(), x.end()));
    }
    expect_equal(k.output(DType::u8, quantized_bytes(n, bits, 16)).run());
  }
}

TEST_P(DeviceTest, DequantizeGivesTheCpusNumbers) {
  constexpr std::int64_t pieces = 3;
  for (const int bits : {8, 4}) {
    for (const std::int64_t block : {16, 256, 1024}) {
      for (const std::int64_t chunk : {1_i, 33_i, 520_i, 2100_i}) {
        for (const std::int64_t elements : {2 * chunk, chunk + chunk / 3}) {
          const QuantizedDims d{.elements = elements, .chunk = chunk, .chunks = 2, .block = block, .bits = bits};
          const std::int64_t bytes = 2 * quantized_bytes(chunk, bits, block);
          std::vector<std::uint8_t> packed(static_cast<std::size_t>(pieces * bytes));
          std::vector<float> x(static_cast<std::size_t>(elements));
          for (std::int64_t piece = 0; piece < pieces; ++piece) {
            const RandomStream random{.seed = 3, .stream = static_cast<std::uint64_t>(piece)};
            for (std::size_t i = 0; i < x.size(); ++i) x[i] = 2.0F * random.uniform(i) - 1.0F;
            cpu::quantize(d, 1, x.data(), packed.data() + piece * bytes);
          }
          for (const std::int64_t add : {0, 1}) {
            Attributes attributes = quantized_attributes(d);
            attributes.set("pieces", pieces);
            attributes.set("accumulate", add);
            OneKernel k(Kernel::dequantize, attributes);
            expect_equal(k.given(DType::u8, packed).output(GetParam(), elements, chunk % 2).run());
          }
        }
      }
    }
  }
}

TEST_P(DeviceTest, SplitNorms) {
  for (const std::int64_t width : {77, 72, 2056}) {
    for (const std::int64_t rms : {0, 1}) {
      OneKernel partial(Kernel::norm_partial, {{"rows", 13_i}, {"width", width}, {"rms", rms}});
      expect_close(partial.input(GetParam(), 13 * width).output(f32, 26).run(), close_f32, close_bf16);
      OneKernel apply(Kernel::norm_apply,
                      {{"rows", 13_i}, {"width", width}, {"parts", 3_i}, {"epsilon", 1e-5}, {"rms", rms}});
      apply.input(GetParam(), 13 * width).positive(3 * 26).input(GetParam(), width);
      if (rms == 0) apply.input(GetParam(), width);
      expect_close(apply.output(GetParam(), 13 * width).output(f32, rms == 0 ? 26 : 13).run(), close_f32, close_bf16);
    }
  }
}

/// Three parts of 77, of 4 and of no features: each says how many.
TEST_P(DeviceTest, SplitNormsOfUnequalParts) {
  constexpr std::int64_t rows = 13;
  for (const std::int64_t width : {77_i, 0_i}) {
    for (const std::int64_t rms : {0, 1}) {
      OneKernel partial(Kernel::norm_partial, {{"rows", rows}, {"width", width}, {"features", 81_i}, {"rms", rms}});
      expect_close(partial.input(GetParam(), rows * width).output(f32, 3 * rows).run(), close_f32, close_bf16);
      std::vector<float> all;
      for (const float features : {77.0F, 4.0F, 0.0F}) {
        for (std::int64_t row = 0; row < rows; ++row) {
          const float mean = rms != 0 ? 0.0F : 0.01F * static_cast<float>(row) * features;
          all.insert(all.end(), {mean, 0.5F * features + static_cast<float>(row), features});
        }
      }
      OneKernel apply(
          Kernel::norm_apply,
          {{"rows", rows}, {"width", width}, {"features", 81_i}, {"parts", 3_i}, {"epsilon", 1e-5}, {"rms", rms}});
      apply.input(GetParam(), rows * width).given(f32, all).input(GetParam(), width);
      if (rms == 0) apply.input(GetParam(), width);
      expect_close(apply.output(GetParam(), rows * width).output(f32, rms == 0 ? 2 * rows : rows).run(), close_f32,
                   close_bf16);
    }
  }
}

TEST_P(DeviceTest, SplitNormGradients) {
  for (const std::int64_t width : {77, 72}) {
    const std::int64_t rows = width == 77 ? 260 : 20;  // blocks of one row and of two; of one
    for (const bool rms : {false, true}) {
      const std::int64_t statistics = rms ? rows : 2 * rows;
      for (const bool add : {false, true}) {
        OneKernel partial(Kernel::norm_backward_partial, {{"rows", rows},
                                                          {"width", width},
                                                          {"rms", rms ? 1_i : 0_i},
                                                          {"accumulate", add ? (rms ? 2_i : 6_i) : 0_i}});
        partial.input(GetParam(), rows * width).input(GetParam(), rows * width).input(GetParam(), width);
        partial.positive(statistics).output(f32, 2 * rows).output(f32, width);
        if (!rms) partial.output(f32, width);
        expect_close(partial.run(), close_f32, close_bf16);
        OneKernel apply(Kernel::norm_backward_apply, {{"rows", rows},
                                                      {"width", width},
                                                      {"parts", 3_i},
                                                      {"rms", rms ? 1_i : 0_i},
                                                      {"accumulate", add ? 1_i : 0_i}});
        apply.input(GetParam(), rows * width).input(GetParam(), rows * width).input(GetParam(), width);
        apply.positive(statistics).input(f32, 3 * 2 * rows, 10.0).output(GetParam(), rows * width);
        expect_close(apply.run(), close_f32, close_bf16);
      }
    }
  }
}

/// Classes 11 … of a vocabulary in which every fourth run of `run` is this rank's; targets everywhere, one ignored.
TEST_P(DeviceTest, SplitCrossEntropy) {
  for (const std::int64_t run : {8_i, 125_i, 375_i}) {
    const std::int64_t classes = 3 * run;
    Attributes attributes = {{"rows", 9_i}, {"classes", classes}, {"first_class", 11_i},
                             {"run", run},  {"size0", 3_i},       {"stride0", 4 * run}};
    std::vector<std::int32_t> targets;
    for (const std::int64_t target : {11_i, 10_i, 10 + run, 11 + run, 11 + 4 * run, 10 + 9 * run, 11 + 9 * run, 0_i}) {
      targets.push_back(static_cast<std::int32_t>(target));
    }
    targets.push_back(ignored_target);
    OneKernel partial(Kernel::cross_entropy_partial, attributes);
    partial.input(GetParam(), 9 * classes, 5.0).given(DType::i32, targets).output(f32, 27);
    expect_close(partial.run(), close_f32, close_f32);
    attributes.set("parts", 4_i);
    attributes.set("scale", 1.0 / 9);
    OneKernel apply(Kernel::cross_entropy_apply, attributes);
    apply.input(GetParam(), 9 * classes).given(DType::i32, targets).positive(4 * 27);
    expect_close(apply.output(f32, 9).output_is_input(0).run(), close_f32, close_bf16);
  }
}

TEST_P(DeviceTest, InitialValuesAreTheCpusBitForBit) {
  using Distribution = Initializer::Kind;
  for (const Distribution d : {Distribution::constant, Distribution::normal, Distribution::uniform}) {
    OneKernel k(Kernel::initialize,
                {{"elements", 1037_i}, {"distribution", static_cast<std::int64_t>(d)}, {"a", 0.1}, {"b", 0.7}},
                "wte.weight");
    expect_equal(k.output(GetParam(), 1037, 3).run());
  }
  OneKernel k(Kernel::fill, {{"elements", 1037_i}, {"value", 0.3}});
  expect_equal(k.output(GetParam(), 1037).run());
}

TEST_P(DeviceTest, Embedding) {
  const Attributes sizes = {{"rows", 26_i}, {"sequence", 13_i}, {"width", 37_i}, {"vocabulary", 19_i}};
  for (const bool positions : {false, true}) {
    OneKernel k(Kernel::embedding_forward, sizes);
    k.indices(DType::i32, 26, 19).input(GetParam(), 19 * 37);
    if (positions) k.input(GetParam(), 16 * 37);
    expect_equal(k.output(GetParam(), 26 * 37).run());
    for (const std::int64_t add : {0, 3}) {
      Attributes backward = sizes;
      backward.set("accumulate", add);
      OneKernel g(Kernel::embedding_backward, backward);
      g.indices(DType::i32, 26, 19).input(GetParam(), 26 * 37).output(f32, 19 * 37);
      if (positions) g.output(f32, 16 * 37);
      expect_equal(g.run());  // sums are in the order of the rows on both
    }
  }
}

TEST_P(DeviceTest, EmbeddingBackwardOfManyRows) {
  OneKernel g(Kernel::embedding_backward,
              {{"rows", 1000_i}, {"sequence", 1000_i}, {"width", 9_i}, {"vocabulary", 50_i}, {"accumulate", 0_i}});
  expect_close(g.indices(DType::i32, 1000, 50).input(GetParam(), 9000).output(f32, 450).run(), close_f32, close_f32);
  OneKernel frequent(Kernel::embedding_backward,
                     {{"rows", 700_i}, {"sequence", 700_i}, {"width", 70_i}, {"vocabulary", 2_i}, {"accumulate", 0_i}});
  expect_close(frequent.indices(DType::i32, 700, 2).input(GetParam(), 49000).output(f32, 140).run(), close_f32,
               close_f32);
}

TEST_P(DeviceTest, CrossEntropy) {
  for (const std::int64_t row : {1501, 1504}) {
    Attributes attributes = {{"rows", 9_i}, {"classes", 1501_i}, {"scale", 1.0 / 9}};
    if (row != 1501) attributes.set("ld", row);
    OneKernel k(Kernel::cross_entropy, attributes);
    k.input(GetParam(), 9 * row, 5.0).indices(DType::i32, 9, 1501).output(f32, 9).output_is_input(0);
    expect_close(k.run(), close_f32, close_bf16);
  }
}

Attributes convolution_attributes(std::int64_t stride) {
  return {{"samples", 2_i},   {"in", 8_i},      {"out", 16_i},   {"kernel", 3_i},
          {"stride", stride}, {"padding", 1_i}, {"height", 9_i}, {"width", 7_i}};
}

TEST_P(DeviceTest, Convolution) {
  for (const std::int64_t stride : {1, 2}) {
    const std::int64_t y = 2 * (stride == 1 ? 9 * 7 : 5 * 4) * 16;
    const std::int64_t x = 2 * 9 * 7 * 8;
    const std::int64_t w = 16 * 9 * 8;
    OneKernel forward(Kernel::convolution_forward, convolution_attributes(stride));
    forward.input(GetParam(), x).input(GetParam(), w).input(GetParam(), 16).output(GetParam(), y);
    expect_close(forward.run(), close_f32, 2 * close_bf16);  // the bias is added to what was rounded
    OneKernel input(Kernel::convolution_backward_input, convolution_attributes(stride));
    expect_close(input.input(GetParam(), y).input(GetParam(), w).output(GetParam(), x).run(), close_f32, close_bf16);
    for (const std::int64_t add : {0, 3}) {
      Attributes attributes = convolution_attributes(stride);
      attributes.set("accumulate", add);
      OneKernel weight(Kernel::convolution_backward_weight, attributes);
      weight.input(GetParam(), x).input(GetParam(), y).output(f32, w).output(f32, 16);
      // The GPU's sums are rounded to the dtype of the activations.
      expect_close(weight.run(), GetParam() == f32 ? close_f32 : close_bf16, close_bf16);
    }
  }
}

TEST_P(DeviceTest, ConvolutionWithRelu) {
  const std::int64_t x = 2 * 9 * 7 * 8;
  const std::int64_t y = 2 * 9 * 7 * 16;
  Attributes attributes = convolution_attributes(1);
  attributes.set("relu", 1);
  for (const std::int64_t offset : {0, 1}) {  // of the bias: whole packs, and none
    OneKernel k(Kernel::convolution_forward, attributes);
    k.input(GetParam(), x).input(GetParam(), 16 * 9 * 8).input(GetParam(), 16, 1.0, offset).output(GetParam(), y);
    expect_close(k.run(), close_f32, 2 * close_bf16);
  }
  OneKernel without_bias(Kernel::convolution_forward, attributes);
  without_bias.input(GetParam(), x).input(GetParam(), 16 * 9 * 8).output(GetParam(), y);
  expect_close(without_bias.run(), close_f32, close_bf16);
}

/// Fewer columns than threads and more, packs of them and none, rows that a block shares out and those it does not.
TEST_P(DeviceTest, ReluGradientWithBias) {
  for (const auto& [rows, columns] : {std::pair{1030_i, 64_i}, {7_i, 24_i}, {300_i, 2056_i}, {300_i, 19_i}}) {
    for (const std::int64_t add : {0, 2}) {
      OneKernel k(Kernel::relu_backward, {{"elements", rows * columns}, {"channels", columns}, {"accumulate", add}});
      k.input(GetParam(), rows * columns).input(GetParam(), rows * columns);
      k.output_is_input(0).output(add == 0 ? f32 : GetParam(), columns, add);
      const OneKernel::Both both = k.run();
      EXPECT_EQ(both.cuda[0], both.cpu[0]) << columns;
      expect_close(both, close_f32, close_bf16);
    }
  }
  OneKernel apart(Kernel::relu_backward, {{"elements", 7 * 24_i}, {"channels", 24_i}, {"accumulate", 0_i}});
  apart.input(GetParam(), 7 * 24).input(GetParam(), 7 * 24, 1.0, 1).output(GetParam(), 7 * 24).output(f32, 24);
  expect_close(apart.run(), close_f32, close_bf16);
}

/// Whole packs of channels, and channels one by one because of their number or of where operands begin.
TEST_P(DeviceTest, MaxPool) {
  struct Case {
    std::int64_t channels, kernel, stride, padding, height, width, offset;
  };
  for (const Case& c : {Case{5, 3, 2, 1, 9, 7, 0}, Case{24, 3, 2, 1, 9, 7, 0}, Case{16, 2, 2, 0, 8, 6, 0},
                        Case{16, 2, 2, 0, 7, 5, 0}, Case{16, 2, 2, 0, 8, 6, 3}}) {
    const std::int64_t out_height = (c.height + 2 * c.padding - c.kernel) / c.stride + 1;
    const std::int64_t out_width = (c.width + 2 * c.padding - c.kernel) / c.stride + 1;
    const std::int64_t y = 2 * out_height * out_width * c.channels;
    const std::int64_t x = 2 * c.height * c.width * c.channels;
    const Attributes sizes = {{"samples", 2_i},     {"channels", c.channels}, {"kernel", c.kernel},
                              {"stride", c.stride}, {"padding", c.padding},   {"height", c.height},
                              {"width", c.width}};
    for (const std::int64_t relu : {0, 1}) {
      Attributes attributes = sizes;
      if (relu != 0) attributes.set("relu", 1);
      OneKernel forward(Kernel::max_pool_forward, attributes);
      forward.input(GetParam(), x, 1.0, c.offset).output(GetParam(), y, c.offset).output(DType::u8, y, c.offset);
      expect_equal(forward.run());
    }
    const auto places = static_cast<int>(c.kernel * c.kernel) + 3;  // and those of no element
    OneKernel backward(Kernel::max_pool_backward, sizes);
    expect_equal(backward.input(GetParam(), y, 1.0, c.offset)
                     .indices(DType::u8, y, places)
                     .output(GetParam(), x, c.offset)
                     .run());
    for (const std::int64_t add : {0, 2}) {
      Attributes attributes = sizes;
      attributes.set("accumulate", add);
      OneKernel with_bias(Kernel::max_pool_backward, attributes);
      with_bias.input(GetParam(), y, 1.0, c.offset).indices(DType::u8, y, places);
      with_bias.output(GetParam(), x, c.offset).output(f32, c.channels);
      const OneKernel::Both both = with_bias.run();
      EXPECT_EQ(both.cuda[0], both.cpu[0]) << c.channels;
      expect_close(both, close_f32, close_bf16);
    }
  }
}

TEST_P(DeviceTest, AveragePool) {
  const Attributes average = {{"samples", 3_i}, {"channels", 19_i}, {"height", 5_i}, {"width", 7_i}};
  OneKernel mean(Kernel::average_pool_forward, average);
  expect_close(mean.input(GetParam(), 3 * 35 * 19).output(GetParam(), 3 * 19).run(), close_f32, close_bf16);
  OneKernel spread(Kernel::average_pool_backward, average);
  expect_close(spread.input(GetParam(), 3 * 19).output(GetParam(), 3 * 35 * 19).run(), close_f32, close_bf16);
}

TEST_P(DeviceTest, ClassToken) {
  const Attributes sizes = {{"samples", 3_i}, {"channels", 19_i}, {"height", 5_i}, {"width", 7_i}};
  OneKernel forward(Kernel::class_token_forward, sizes);
  forward.input(GetParam(), 3 * 35 * 19).input(GetParam(), 19).input(GetParam(), 36 * 19);
  expect_equal(forward.output(GetParam(), 3 * 36 * 19).run());
  for (const std::int64_t add : {0, 6}) {
    Attributes backward = sizes;
    backward.set("accumulate", add);
    OneKernel k(Kernel::class_token_backward, backward);
    k.input(GetParam(), 3 * 36 * 19).output(GetParam(), 3 * 35 * 19).output(f32, 19).output(f32, 36 * 19);
    expect_equal(k.run());  // sums are in the order of the images on both
  }
}

TEST_P(DeviceTest, FirstRow) {
  const Attributes sizes = {{"samples", 3_i}, {"sequence", 7_i}, {"width", 19_i}};
  OneKernel forward(Kernel::first_row_forward, sizes);
  expect_equal(forward.input(GetParam(), 3 * 7 * 19).output(GetParam(), 3 * 19).run());
  OneKernel backward(Kernel::first_row_backward, sizes);
  expect_equal(backward.input(GetParam(), 3 * 19).output(GetParam(), 3 * 7 * 19).run());
}

TEST_P(DeviceTest, Sums) {
  for (const std::int64_t n : {1_i, 1037_i, 300'000_i}) {
    for (const std::int64_t add : {0, 1}) {
      OneKernel squares(Kernel::sum_of_squares, {{"elements", n}, {"accumulate", add}});
      expect_close(squares.input(GetParam(), n).output(f32, 1).run(), close_f32, close_bf16);
      OneKernel loss(Kernel::sum_loss, {{"elements", n}, {"scale", 0.25}, {"accumulate", add}});
      expect_close(loss.positive(n).output(f32, 1).run(), close_f32, close_bf16);
    }
  }
}

TEST_P(DeviceTest, ClipFactor) {
  for (const double clip : {0.1, 100.0}) {
    OneKernel k(Kernel::clip_factor, {{"clip_norm", clip}});
    expect_close(k.positive(1).output(f32, 1).output(f32, 1).run(), 1e-6, 1e-6);
  }
}

TEST_P(DeviceTest, Optimizers) {
  const std::int64_t n = 1037;
  for (const std::int64_t offset : {0, 1}) {
    for (const bool compute : {false, true}) {
      for (const std::int64_t decoupled : {0, 1}) {
        OneKernel adam(Kernel::adam, {{"elements", n},
                                      {"weight_decay", 0.1},
                                      {"beta1", 0.9},
                                      {"beta2", 0.95},
                                      {"epsilon", 1e-8},
                                      {"decoupled", decoupled}});
        // A second moment is not negative; with this decay the next one is not either.
        adam.input(GetParam(), n, 4.0, offset).positive(1);
        adam.output(f32, n, offset).output(f32, n, offset);
        adam.positive_output(n);
        if (compute) adam.output(DType::bf16, n, offset);
        expect_close(adam.run(), close_f32, close_bf16);
      }
      OneKernel momentum(Kernel::sgd_momentum, {{"elements", n}, {"weight_decay", 0.1}, {"momentum", 0.9}});
      momentum.input(GetParam(), n, 1.0, offset).positive(1).output(f32, n, offset).output(f32, n, offset);
      if (compute) momentum.output(DType::bf16, n, offset);
      expect_close(momentum.run(), close_f32, close_bf16);
      OneKernel sgd(Kernel::sgd, {{"elements", n}, {"weight_decay", 0.1}});
      sgd.input(GetParam(), n, 1.0, offset).positive(1).output(f32, n, offset);
      if (compute) sgd.output(DType::bf16, n, offset);
      expect_close(sgd.run(), close_f32, close_bf16);
    }
  }
}

/// More slices than a launch takes, of which some are empty, shorter than eight, longer than a block, or misaligned: as
/// each alone.
TEST(OptimizerSlices, OfOneLaunch) {
  cuda::set_environment(/*num_nccl_ranks=*/1);
  if (cuda::num_devices() == 0) GTEST_SKIP() << "no GPU";
  std::vector<std::int64_t> sizes;
  for (std::size_t s = 0; s < 2 * cuda::most_slices_of_launch + 5; ++s) {
    sizes.push_back(std::array<std::int64_t, 6>{0, 1, 7, 264, 1037, 16389}[s % 6]);
  }
  const auto updated = [&](std::size_t slices_of_call) {
    const std::int64_t n = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
    const cuda::PinnedMemory memory(5 * n * size_of(f32));
    const cuda::PinnedMemory factors(sizeof(cuda::AdamFactors));
    auto* const values = memory.as<float>();
    const RandomStream random{.seed = 3, .stream = 1};
    for (std::int64_t i = 0; i < 5 * n; ++i) values[i] = random.uniform(static_cast<std::uint64_t>(i));
    *factors.as<cuda::AdamFactors>() = cuda::adam_factors({.weight_decay = 0.1}, 0.01, 4);
    std::vector<cuda::ParameterSlice> slices;
    float* at = values;
    for (const std::int64_t size : sizes) {
      slices.push_back({.n = size,
                        .master = at,
                        .gradient = at + n,
                        .compute = at + 2 * n,
                        .first_state = at + 3 * n,
                        .second_state = at + 4 * n,
                        .factors = factors.data()});
      at += size;
    }
    const cuda::Stream stream;
    for (std::size_t s = 0; s < slices.size(); s += slices_of_call) {
      const auto of_call = std::span(slices).subspan(s, std::min(slices_of_call, slices.size() - s));
      cuda::adam_update(of_call, stream.get());
    }
    stream.synchronize();
    return std::vector<float>(values, values + 5 * n);
  };
  EXPECT_EQ(updated(sizes.size()), updated(1));
}

}  // namespace
}  // namespace strata
