/// @file
/// Rows in parts against whole rows: norms and cross-entropy, each part made and applied as its rank would.

#include <gtest/gtest.h>

#include "exec/cpu/kernels/cross_entropy.hpp"
#include "exec/cpu/kernels/layer_norm.hpp"
#include "exec/cpu/kernels/permute.hpp"
#include "exec/cpu/kernels/rms_norm.hpp"
#include "exec/cpu/kernels/split_rows.hpp"
#include "unit/exec/elements.hpp"

namespace strata::cpu::test_split_rows {
namespace {

using test::random_tensor;
using test::Tensor;
using test::Workspace;

/// Columns [part · width, (part + 1) · width) of @p whole.
Tensor columns(const Tensor& whole, std::int64_t rows, std::int64_t width, std::int64_t part) {
  const std::int64_t row = whole.size() / rows;
  Tensor result(whole.dtype(), rows * width);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t i = 0; i < width; ++i) result.set(r * width + i, whole.at(r * row + part * width + i));
  }
  return result;
}

std::vector<double> values(const Tensor& tensor) {
  std::vector<double> all;
  for (std::int64_t i = 0; i < tensor.size(); ++i) all.push_back(tensor.at(i));
  return all;
}

float* floats(Tensor& tensor) { return static_cast<float*>(tensor.data()); }

class SplitNorm : public ::testing::TestWithParam<std::tuple<bool, std::int64_t, std::int64_t, DType>> {
 protected:
  SplitNormDims dims{.rows = 21,
                     .width = std::get<1>(GetParam()),
                     .parts = std::get<2>(GetParam()),
                     .rms = std::get<0>(GetParam()),
                     .dtype = std::get<3>(GetParam()),
                     .epsilon = 1e-5F};
  std::int64_t features = dims.width * dims.parts;
  std::int64_t n = dims.rows * features;
  Tensor x = random_tensor(dims.dtype, n, "x");
  Tensor dy = random_tensor(dims.dtype, n, "dy");
  Tensor weight = random_tensor(dims.dtype, features, "weight");
  Tensor bias = random_tensor(dims.dtype, features, "bias");
  Tensor y{dims.dtype, n}, dx{dims.dtype, n}, dweight{DType::f32, features}, dbias{DType::f32, features};
  Tensor statistics{DType::f32, dims.rows*(dims.rms ? 1 : 2)};

  void whole_rows() {
    if (dims.rms) {
      const RmsNormDims whole{.rows = dims.rows, .width = features, .dtype = dims.dtype, .epsilon = dims.epsilon};
      Workspace workspace{rms_norm_backward_workspace_bytes(whole)};
      rms_norm_forward(whole, x.data(), weight.data(), y.data(), floats(statistics));
      rms_norm_backward(whole,
                        {.dy = dy.data(),
                         .x = x.data(),
                         .weight = weight.data(),
                         .statistics = floats(statistics),
                         .dx = dx.data(),
                         .dweight = dweight.data()},
                        {}, workspace.span());
      return;
    }
    const LayerNormDims whole{.rows = dims.rows, .width = features, .dtype = dims.dtype, .epsilon = dims.epsilon};
    Workspace workspace{layer_norm_backward_workspace_bytes(whole)};
    layer_norm_forward(whole, x.data(), weight.data(), bias.data(), y.data(), floats(statistics));
    layer_norm_backward(whole,
                        {.dy = dy.data(),
                         .x = x.data(),
                         .weight = weight.data(),
                         .statistics = floats(statistics),
                         .dx = dx.data(),
                         .dweight = dweight.data(),
                         .dbias = dbias.data()},
                        {}, workspace.span());
  }
};

TEST_P(SplitNorm, PartsAreTheWholeInPieces) {
  whole_rows();
  const double slack = dims.dtype == DType::f32 ? 2e-5 : 2e-2;
  const std::int64_t numbers = 2 * dims.rows;
  Tensor all(DType::f32, numbers * dims.parts), sums(DType::f32, numbers * dims.parts);
  for (std::int64_t part = 0; part < dims.parts; ++part) {
    norm_partial(dims, columns(x, dims.rows, dims.width, part).data(), floats(all) + part * numbers);
  }
  std::vector<Tensor> ours;  // statistics by part
  for (std::int64_t part = 0; part < dims.parts; ++part) {
    const auto of = [&](const Tensor& whole, std::int64_t rows) { return columns(whole, rows, dims.width, part); };
    Tensor part_y(dims.dtype, dims.rows * dims.width);
    ours.emplace_back(DType::f32, statistics.size());
    const Tensor part_x = of(x, dims.rows), part_dy = of(dy, dims.rows), part_weight = of(weight, 1);
    const Tensor part_bias = of(bias, 1);
    norm_apply(dims, {.x = part_x.data(),
                      .all = floats(all),
                      .weight = part_weight.data(),
                      .bias = dims.rms ? nullptr : part_bias.data(),
                      .y = part_y.data(),
                      .statistics = floats(ours.back())});
    test::expect_elements(part_y, values(of(y, dims.rows)), slack, slack);
    test::expect_elements(ours.back(), values(statistics), 1e-5, 1e-6);

    Tensor part_dweight(DType::f32, dims.width), part_dbias(DType::f32, dims.width);
    Workspace workspace{norm_backward_partial_workspace_bytes(dims)};
    for (const bool accumulate : {false, true}) {
      norm_backward_partial(dims,
                            {.dy = part_dy.data(),
                             .x = part_x.data(),
                             .weight = part_weight.data(),
                             .statistics = floats(ours.back()),
                             .partial = floats(sums) + part * numbers,
                             .dweight = part_dweight.data(),
                             .dbias = dims.rms ? nullptr : part_dbias.data()},
                            accumulate, workspace.span());
      std::vector<double> expected = values(of(dweight, 1));
      for (double& v : expected) v *= accumulate ? 2.0 : 1.0;
      test::expect_elements(part_dweight, expected, 1e-4, 1e-4);
    }
    if (!dims.rms) {
      std::vector<double> expected = values(of(dbias, 1));
      for (double& v : expected) v *= 2.0;
      test::expect_elements(part_dbias, expected, 1e-4, 1e-4);
    }
  }
  for (std::int64_t part = 0; part < dims.parts; ++part) {
    const auto of = [&](const Tensor& whole, std::int64_t rows) { return columns(whole, rows, dims.width, part); };
    Tensor part_dx(dims.dtype, dims.rows * dims.width);
    const Tensor part_x = of(x, dims.rows), part_dy = of(dy, dims.rows), part_weight = of(weight, 1);
    const NormBackwardApplyOperands operands{.dy = part_dy.data(),
                                             .x = part_x.data(),
                                             .weight = part_weight.data(),
                                             .statistics = floats(ours[static_cast<std::size_t>(part)]),
                                             .all = floats(sums),
                                             .dx = part_dx.data()};
    norm_backward_apply(dims, operands, false);
    test::expect_elements(part_dx, values(of(dx, dims.rows)), slack, slack);
    norm_backward_apply(dims, operands, true);
    std::vector<double> twice = values(of(dx, dims.rows));
    for (double& v : twice) v *= 2.0;
    test::expect_elements(part_dx, twice, 2 * slack, 2 * slack);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, SplitNorm,
                         ::testing::Combine(::testing::Bool(), ::testing::Values(1, 7, 16, 33), ::testing::Values(1, 3),
                                            ::testing::Values(DType::f32, DType::bf16)));

TEST(SplitCrossEntropy, PartsAreTheWholeInPieces) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t classes : {1, 5, 16, 100}) {
      const std::int64_t rows = 9, parts = 3;
      Tensor logits = random_tensor(dtype, rows * classes * parts, "logits");
      for (std::int64_t i = 0; i < logits.size(); ++i) logits.set(i, 6.0 * logits.at(i));
      std::vector<std::int32_t> targets;
      for (std::int64_t r = 0; r < rows; ++r) targets.push_back(static_cast<std::int32_t>(r * 31 % (classes * parts)));
      targets[3] = ignored_target;
      Tensor whole = columns(logits, rows, classes * parts, 0), whole_loss(DType::f32, rows);
      cross_entropy_gradient({.rows = rows, .classes = classes * parts, .dtype = dtype}, whole.data(), targets.data(),
                             0.125F, floats(whole_loss));
      Tensor all(DType::f32, 3 * rows * parts);
      const auto dims = [&](std::int64_t part) {
        return SplitCrossEntropyDims{.rows = rows,
                                     .classes = classes,
                                     .held = {.elements = classes, .first = part * classes, .run = classes},
                                     .parts = parts,
                                     .dtype = dtype};
      };
      for (std::int64_t part = 0; part < parts; ++part) {
        cross_entropy_partial(dims(part), columns(logits, rows, classes, part).data(), targets.data(),
                              floats(all) + 3 * rows * part);
      }
      for (std::int64_t part = 0; part < parts; ++part) {
        Tensor ours = columns(logits, rows, classes, part), loss(DType::f32, rows);
        cross_entropy_apply(dims(part), ours.data(), targets.data(), floats(all), 0.125F, floats(loss));
        test::expect_elements(loss, values(whole_loss), 2e-6, 2e-6);
        test::expect_elements(ours, values(columns(whole, rows, classes, part)), dtype == DType::f32 ? 1e-5 : 1e-2,
                              1e-7);
      }
    }
  }
}

TEST(Permute, KnowsWhereAnElementIsHeld) {
  const PermuteDims dims{.elements = 12, .first = 3, .run = 2, .num_levels = 2, .sizes = {2, 3}, .strides = {20, 5}};
  for (std::int64_t at = -2; at < 50; ++at) {
    std::int64_t expected = -1;
    for (std::int64_t i = 0; i < dims.elements; ++i) {
      if (dims.place(i).at == at) expected = i;
    }
    EXPECT_EQ(dims.index_of(at), expected) << at;
  }
}

TEST(Permute, TakesRunsInTheOrderOfTheResult) {
  // x [2, 3, 4] as [3, 2, 4], then the second half of it as [3, 4].
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Tensor x(dtype, 24), y(dtype, 24);
    for (std::int64_t i = 0; i < 24; ++i) x.set(i, static_cast<double>(i));
    PermuteDims dims{.elements = 24, .run = 4, .num_levels = 2, .sizes = {3, 2}, .strides = {4, 12}, .dtype = dtype};
    permute(dims, x.data(), y.data());
    for (std::int64_t i = 0; i < 24; ++i) EXPECT_EQ(y.at(i), x.at(i / 8 * 4 + i / 4 % 2 * 12 + i % 4));
    dims = {.elements = 12, .first = 12, .run = 2, .num_levels = 1, .sizes = {6}, .strides = {2}, .dtype = dtype};
    permute(dims, x.data(), y.data());
    for (std::int64_t i = 0; i < 12; ++i) EXPECT_EQ(y.at(i), x.at(12 + i));
  }
}

/// Rows of 5 in runs of 2, of which the last is short: out of a matrix, and back.
TEST(Permute, TakesRunsThatAreCutShortAndScattersThem) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    constexpr std::int64_t rows = 3, row = 11;
    PermuteDims dims{.elements = 5 * rows,
                     .first = 1,
                     .run = 2,
                     .num_levels = 2,
                     .sizes = {rows, 3},
                     .strides = {row, 4},
                     .periods = {5, 0},
                     .dtype = dtype};
    Tensor x(dtype, rows * row), y(dtype, 5 * rows), back(dtype, rows * row);
    for (std::int64_t i = 0; i < rows * row; ++i) x.set(i, static_cast<double>(i + 1));
    permute(dims, x.data(), y.data());
    const std::vector<std::int64_t> columns = {1, 2, 5, 6, 9};
    for (std::int64_t i = 0; i < 5 * rows; ++i) {
      const std::int64_t at = i / 5 * row + columns[static_cast<std::size_t>(i % 5)];
      EXPECT_EQ(y.at(i), x.at(at)) << i;
      EXPECT_EQ(dims.index_of(at), i);
    }
    for (std::int64_t i = 0; i < rows * row; ++i) back.set(i, -1.0);
    dims.scatters = true;
    permute(dims, y.data(), back.data());
    for (std::int64_t at = 0; at < rows * row; ++at) {
      const bool is_held = std::ranges::find(columns, at % row) != columns.end();
      EXPECT_EQ(back.at(at), is_held ? x.at(at) : -1.0) << at;
    }
  }
}

}  // namespace
}  // namespace strata::cpu::test_split_rows
