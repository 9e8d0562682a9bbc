/// @file
/// Products, convolutions and attention at the shapes that the benchmarked models have, against double precision: of
/// each some results, chosen at random, from the operands as they are stored. The emulation, which takes each product
/// one by one, has the same shapes cut down.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "cuda/device_test.hpp"

namespace strata {
namespace {

constexpr DType b16 = DType::bf16;

class RealShapes : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (!IsSkipped()) is_emulated_ = cuda::device_name().starts_with("emulated");
  }
  /// What the emulation has of an extent.
  std::int64_t cut(std::int64_t whole, std::int64_t emulated) const { return is_emulated_ ? emulated : whole; }

 private:
  bool is_emulated_ = false;
};

INSTANTIATE_TEST_SUITE_P(Dtypes, RealShapes, testing::Values(b16),
                         [](const auto& test) { return std::string(to_string(test.param)); });

/// A sum in double precision, and of what size its terms are: rounding in f32 is a part of that.
struct Exact {
  double sum = 0.0;
  double terms = 0.0;
  void add(double a, double b) {
    sum += a * b;
    terms += std::abs(a * b);
  }
};

/// Results of @p dtype at random places: rounded once from a sum in f32, and of two @p roundings where something is
/// added to what was rounded.
void expect_exact(const std::vector<float>& results, DType dtype, const std::function<Exact(std::int64_t)>& exact,
                  int roundings = 1) {
  const RandomStream random{.seed = 7, .stream = 1};
  const double rounding = dtype == DType::f32 ? 1e-7 : 1.0 / 256.0;
  for (std::uint64_t draw = 0; draw < 200; ++draw) {
    const auto at =
        static_cast<std::int64_t>(static_cast<double>(random.uniform(draw)) * static_cast<double>(results.size()));
    const Exact expected = exact(at);
    EXPECT_NEAR(results[static_cast<std::size_t>(at)], expected.sum,
                roundings * rounding * std::abs(expected.sum) + 2e-6 * expected.terms)
        << "element " << at;
  }
}

/// y[rows, out] = x[rows, in] · Wᵀ and both gradients.
/// @param row elements from one row of y and dy to the next.
void check_linear(std::int64_t rows, std::int64_t in, std::int64_t out, std::int64_t row) {
  const Attributes sizes = {{"rows", rows}, {"in", in}, {"out", out}, {"ld", row}};
  Attributes overwriting = sizes;
  overwriting.set("accumulate", 0);
  const auto at = [](const std::vector<float>& values, std::int64_t i) {
    return static_cast<double>(values[static_cast<std::size_t>(i)]);
  };
  {
    OneKernel k(Kernel::linear_forward, sizes);
    k.input(b16, rows * in).input(b16, out * in).output(b16, rows * row);
    const std::vector<float> x = k.input_values(0);
    const std::vector<float> w = k.input_values(1);
    std::vector<float> y = k.run_on_gpu()[0];
    for (std::int64_t r = 0; r < rows; ++r) std::copy_n(y.begin() + r * row, out, y.begin() + r * out);
    y.resize(static_cast<std::size_t>(rows * out));
    expect_exact(y, b16, [&](std::int64_t i) {
      Exact sum;
      for (std::int64_t p = 0; p < in; ++p) sum.add(at(x, i / out * in + p), at(w, i % out * in + p));
      return sum;
    });
  }
  {
    OneKernel k(Kernel::linear_backward_input, overwriting);
    k.input(b16, rows * row).input(b16, out * in).output(b16, rows * in);
    const std::vector<float> dy = k.input_values(0);
    const std::vector<float> w = k.input_values(1);
    expect_exact(k.run_on_gpu()[0], b16, [&](std::int64_t i) {
      Exact sum;
      for (std::int64_t o = 0; o < out; ++o) sum.add(at(dy, i / in * row + o), at(w, o * in + i % in));
      return sum;
    });
  }
  OneKernel k(Kernel::linear_backward_weight, overwriting);
  k.input(b16, rows * in).input(b16, rows * row).output(DType::f32, out * in);
  const std::vector<float> x = k.input_values(0);
  const std::vector<float> dy = k.input_values(1);
  expect_exact(k.run_on_gpu()[0], DType::f32, [&](std::int64_t i) {
    Exact sum;
    for (std::int64_t r = 0; r < rows; ++r) sum.add(at(dy, r * row + i / in), at(x, r * in + i % in));
    return sum;
  });
}

TEST_P(RealShapes, GateAndUpOfLlama7b) { check_linear(cut(4096, 24), cut(4096, 40), cut(22016, 56), cut(22016, 56)); }

/// An odd number of columns, in rows as far apart, and in rows of whole vectors.
TEST_P(RealShapes, HeadOfGpt2) {
  // Of one sequence: the host makes logits of eight, and reads them, in minutes.
  check_linear(cut(1024, 24), cut(768, 40), cut(50257, 57), cut(50257, 57));
  check_linear(cut(1024, 24), cut(768, 40), cut(50257, 57), cut(50264, 64));
}

/// 3×3, one zero around.
struct Image {
  std::int64_t images, size, in, out;
  std::int64_t positions() const { return images * size * size; }
  /// Calls body(element of x, row · 3 + column of the kernel) for what position @p at of y is made of, channel 0 of x.
  template <typename Body>
  void for_window(std::int64_t at, const Body& body) const {
    const std::int64_t row = at / size % size;
    const std::int64_t column = at % size;
    for (std::int64_t r = -1; r <= 1; ++r) {
      for (std::int64_t c = -1; c <= 1; ++c) {
        if (row + r < 0 || row + r >= size || column + c < 0 || column + c >= size) continue;
        body((at + r * size + c) * in, (r + 1) * 3 + c + 1);
      }
    }
  }
  Attributes attributes() const {
    return {{"samples", images},
            {"in", in},
            {"out", out},
            {"kernel", std::int64_t{3}},
            {"stride", std::int64_t{1}},
            {"padding", std::int64_t{1}},
            {"height", size},
            {"width", size}};
  }
};

void check_convolution(const Image& d) {
  const auto at = [](const std::vector<float>& values, std::int64_t i) {
    return static_cast<double>(values[static_cast<std::size_t>(i)]);
  };
  {
    Attributes with_relu = d.attributes();
    with_relu.set("relu", 1);
    OneKernel k(Kernel::convolution_forward, with_relu);
    k.input(b16, d.positions() * d.in)
        .input(b16, d.out * 9 * d.in)
        .input(b16, d.out)
        .output(b16, d.positions() * d.out);
    const std::vector<float> x = k.input_values(0);
    const std::vector<float> w = k.input_values(1);
    const std::vector<float> bias = k.input_values(2);
    const auto exact = [&](std::int64_t i) {
      const std::int64_t o = i % d.out;
      Exact sum;
      d.for_window(i / d.out, [&](std::int64_t from, std::int64_t place) {
        for (std::int64_t c = 0; c < d.in; ++c) sum.add(at(x, from + c), at(w, (o * 9 + place) * d.in + c));
      });
      sum.terms += std::abs(sum.sum) * 2000.0;  // a pass of its own adds the bias to what was rounded
      sum.add(at(bias, o), 1.0);
      sum.sum = std::max(0.0, sum.sum);
      return sum;
    };
    expect_exact(k.run_on_gpu()[0], b16, exact, 2);
  }
  Attributes overwriting = d.attributes();
  overwriting.set("accumulate", 0);
  OneKernel k(Kernel::convolution_backward_weight, overwriting);
  k.input(b16, d.positions() * d.in).input(b16, d.positions() * d.out).output(DType::f32, d.out * 9 * d.in);
  const std::vector<float> x = k.input_values(0);
  const std::vector<float> dy = k.input_values(1);
  // The GPU's sums are rounded to the dtype of the activations.
  expect_exact(k.run_on_gpu()[0], b16, [&](std::int64_t i) {
    const std::int64_t o = i / d.in / 9;
    const std::int64_t place = i / d.in % 9;
    Exact sum;
    for (std::int64_t p = 0; p < d.positions(); ++p) {
      d.for_window(p, [&](std::int64_t from, std::int64_t here) {
        if (here == place) sum.add(at(dy, p * d.out + o), at(x, from + i % d.in));
      });
    }
    return sum;
  });
}

TEST_P(RealShapes, FirstConvolutionOfVgg) { check_convolution({cut(32, 2), cut(224, 9), 3, cut(64, 8)}); }

/// With whole vectors of channels, for which cuDNN has one kernel.
TEST_P(RealShapes, SecondConvolutionOfVgg) { check_convolution({cut(32, 2), cut(224, 9), cut(64, 8), cut(64, 16)}); }

TEST_P(RealShapes, AttentionOfLlama7b) {
  const std::int64_t sequence = cut(4096, 19);
  const std::int64_t heads = cut(32, 2);
  const std::int64_t head_dim = cut(128, 16);
  OneKernel k(Kernel::attention_forward, {{"samples", std::int64_t{1}},
                                          {"first_sample", std::int64_t{0}},
                                          {"sequence", sequence},
                                          {"heads", heads},
                                          {"kv_heads", heads},
                                          {"head_dim", head_dim},
                                          {"causal", std::int64_t{1}},
                                          {"dropout", 0.0}});
  const std::int64_t width = heads * head_dim;
  k.input(b16, sequence * 3 * width).output(b16, sequence * width).output(DType::f32, heads * sequence);
  const std::vector<float> qkv = k.input_values(0);
  // Of three tensors that stand side by side at each position, a head's element.
  const auto at = [&](std::int64_t position, std::int64_t tensor, std::int64_t head, std::int64_t element) {
    return static_cast<double>(
        qkv[static_cast<std::size_t>((position * 3 + tensor) * width + head * head_dim + element)]);
  };
  expect_exact(k.run_on_gpu()[0], b16, [&](std::int64_t i) {
    const std::int64_t query = i / width;
    const std::int64_t head = i % width / head_dim;
    std::vector<double> weights;
    for (std::int64_t key = 0; key <= query; ++key) {
      double score = 0.0;
      for (std::int64_t e = 0; e < head_dim; ++e) score += at(query, 0, head, e) * at(key, 1, head, e);
      weights.push_back(std::exp(score / std::sqrt(static_cast<double>(head_dim))));
    }
    double total = 0.0;
    for (const double weight : weights) total += weight;
    Exact sum;
    for (std::int64_t key = 0; key <= query; ++key) {
      sum.add(weights[static_cast<std::size_t>(key)] / total, at(key, 2, head, i % head_dim));
    }
    sum.terms *= 2000.0;  // probabilities are rounded to bf16 before they are multiplied
    return sum;
  });
}

}  // namespace
}  // namespace strata
