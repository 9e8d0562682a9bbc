/// @file
/// Embedding and its gradients: exact gathers, sums rounded once, ranges of the vocabulary that add up to the whole.

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "exec/cpu/kernels/embedding.hpp"
#include "unit/exec/elements.hpp"

namespace strata::cpu::test_embedding {
namespace {

using test::integer_tensor;
using test::random_tensor;
using test::Tensor;
using test::Workspace;

std::vector<std::int32_t> some_tokens(std::int64_t rows, std::int64_t vocabulary) {
  const RandomStream random{.seed = 5, .stream = stream_of("tokens")};
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < rows; ++i) {
    tokens.push_back(
        static_cast<std::int32_t>(random.word(static_cast<std::uint64_t>(i)) % static_cast<std::uint32_t>(vocabulary)));
  }
  return tokens;
}

class Embedding : public ::testing::TestWithParam<std::tuple<std::int64_t, DType, DType>> {
 protected:
  // Three samples of seven tokens, at positions 2 … 8 of 11.
  EmbeddingDims dims{.rows = 21,
                     .sequence = 7,
                     .width = std::get<0>(GetParam()),
                     .vocabulary = 9,
                     .first_position = 2,
                     .num_positions = 11,
                     .dtype = std::get<1>(GetParam()),
                     .gradient_dtype = std::get<2>(GetParam())};
  std::vector<std::int32_t> tokens = some_tokens(dims.rows, dims.vocabulary);
  Tensor table = integer_tensor(dims.dtype, dims.vocabulary* dims.width, "table");
  Tensor positions = integer_tensor(dims.dtype, dims.num_positions* dims.width, "positions");
  Tensor dy = integer_tensor(dims.dtype, dims.rows* dims.width, "dy");
  Tensor dtable = integer_tensor(dims.gradient_dtype, dims.vocabulary* dims.width, "old table");
  Tensor dpositions = integer_tensor(dims.gradient_dtype, dims.num_positions* dims.width, "old positions");
};

TEST_P(Embedding, ForwardIsExactOnIntegers) {
  Tensor y(dims.dtype, dims.rows * dims.width);
  test::expect_same_bits_on_any_threads([&] {
    embedding_forward(dims, tokens.data(), table.data(), positions.data(), y.data());
    return y.bits();
  });
  for (std::int64_t row = 0; row < dims.rows; ++row) {
    for (std::int64_t i = 0; i < dims.width; ++i) {
      ASSERT_EQ(y.at(row * dims.width + i), table.at(tokens[static_cast<std::size_t>(row)] * dims.width + i) +
                                                positions.at((2 + row % 7) * dims.width + i));
    }
  }
}

TEST_P(Embedding, BackwardIsExactOnIntegers) {
  for (const bool accumulate : {false, true}) {
    std::vector<double> expected_table(static_cast<std::size_t>(dtable.size()));
    std::vector<double> expected_positions(static_cast<std::size_t>(dpositions.size()));
    const Tensor old_table = integer_tensor(dims.gradient_dtype, dtable.size(), "old table");
    const Tensor old_positions = integer_tensor(dims.gradient_dtype, dpositions.size(), "old positions");
    if (accumulate) {
      expected_table = old_table.values();
      expected_positions = old_positions.values();
    }
    for (std::int64_t row = 0; row < dims.rows; ++row) {
      for (std::int64_t i = 0; i < dims.width; ++i) {
        expected_table[static_cast<std::size_t>(tokens[static_cast<std::size_t>(row)] * dims.width + i)] +=
            dy.at(row * dims.width + i);
        expected_positions[static_cast<std::size_t>((2 + row % 7) * dims.width + i)] += dy.at(row * dims.width + i);
      }
    }
    test::expect_same_bits_on_any_threads([&] {
      dtable = integer_tensor(dims.gradient_dtype, dtable.size(), "old table");
      dpositions = integer_tensor(dims.gradient_dtype, dpositions.size(), "old positions");
      Workspace workspace(embedding_backward_workspace_bytes(dims));
      embedding_backward(
          dims, {.tokens = tokens.data(), .dy = dy.data(), .dtable = dtable.data(), .dpositions = dpositions.data()},
          {.table = accumulate, .positions = accumulate}, workspace.span());
      EXPECT_TRUE(workspace.guard_intact());
      return dtable.bits() + dpositions.bits();
    });
    EXPECT_EQ(dtable.values(), expected_table);
    EXPECT_EQ(dpositions.values(), expected_positions);
  }
}

/// A slice of the columns writes its own, and reads its own, of rows that are longer.
TEST_P(Embedding, SlicesOfTheColumnsAreTheWhole) {
  Tensor whole(dims.dtype, dims.rows * dims.width);
  embedding_forward(dims, tokens.data(), table.data(), positions.data(), whole.data());
  Workspace workspace(embedding_backward_workspace_bytes(dims));
  embedding_backward(
      dims, {.tokens = tokens.data(), .dy = dy.data(), .dtable = dtable.data(), .dpositions = dpositions.data()}, {},
      workspace.span());
  Tensor y(dims.dtype, whole.size());
  for (const auto& [first, size] :
       {std::pair{std::int64_t{0}, dims.width / 3}, {dims.width / 3, dims.width - dims.width / 3}}) {
    if (size == 0) continue;
    EmbeddingDims part = dims;
    part.width = size;
    part.row = dims.width;
    const auto columns = [first = first, size = size, row = dims.width](const Tensor& of) {
      Tensor slice(of.dtype(), of.size() / row * size);
      for (std::int64_t i = 0; i < slice.size(); ++i) slice.set(i, of.at(i / size * row + first + i % size));
      return slice;
    };
    const std::int64_t offset = first * size_of(dims.dtype);
    embedding_forward(part, tokens.data(), columns(table).data(), columns(positions).data(),
                      static_cast<std::byte*>(y.data()) + offset);
    Tensor part_dtable(dims.gradient_dtype, dims.vocabulary * size);
    Tensor part_dpositions(dims.gradient_dtype, dims.num_positions * size);
    embedding_backward(part,
                       {.tokens = tokens.data(),
                        .dy = static_cast<const std::byte*>(dy.data()) + offset,
                        .dtable = part_dtable.data(),
                        .dpositions = part_dpositions.data()},
                       {}, workspace.span());
    EXPECT_EQ(part_dtable.bits(), columns(dtable).bits());
    EXPECT_EQ(part_dpositions.bits(), columns(dpositions).bits());
  }
  EXPECT_EQ(y.bits(), whole.bits());
}

TEST_P(Embedding, RangesOfTheVocabularyAddUp) {
  dims.num_positions = 0;
  Tensor whole(dims.dtype, dims.rows * dims.width);
  embedding_forward(dims, tokens.data(), table.data(), nullptr, whole.data());
  std::vector<double> sum(static_cast<std::size_t>(whole.size()));
  Workspace workspace(embedding_backward_workspace_bytes(dims));
  embedding_backward(dims, {.tokens = tokens.data(), .dy = dy.data(), .dtable = dtable.data()}, {}, workspace.span());
  const std::int64_t cuts[] = {0, 4, 5, 9};
  std::vector<double> gradient;
  for (int k = 0; k < 3; ++k) {
    EmbeddingDims part = dims;
    part.first_token = cuts[k];
    part.table_rows = cuts[k + 1] - cuts[k];
    Tensor shard(dims.dtype, part.table_rows * dims.width);
    for (std::int64_t i = 0; i < shard.size(); ++i) shard.set(i, table.at(cuts[k] * dims.width + i));
    Tensor y(dims.dtype, whole.size());
    embedding_forward(part, tokens.data(), shard.data(), nullptr, y.data());
    for (std::int64_t i = 0; i < whole.size(); ++i) sum[static_cast<std::size_t>(i)] += y.at(i);
    Tensor dshard(dims.gradient_dtype, shard.size());
    embedding_backward(part, {.tokens = tokens.data(), .dy = dy.data(), .dtable = dshard.data()}, {}, workspace.span());
    for (const double value : dshard.values()) gradient.push_back(value);
  }
  EXPECT_EQ(whole.values(), sum);
  EXPECT_EQ(dtable.values(), gradient);
}

INSTANTIATE_TEST_SUITE_P(Widths, Embedding,
                         ::testing::Combine(::testing::Values<std::int64_t>(1, 5, 33, 768),
                                            ::testing::Values(DType::f32, DType::bf16),
                                            ::testing::Values(DType::f32, DType::bf16)));

TEST(EmbeddingGradient, AFrequentTokenIsRoundedOnce) {
  // 1000 additions of 1 in bf16 would stop at 256.
  const EmbeddingDims dims{
      .rows = 1000, .sequence = 1000, .width = 1, .vocabulary = 2, .dtype = DType::bf16, .gradient_dtype = DType::bf16};
  const std::vector<std::int32_t> tokens(1000, 1);
  Tensor dy(DType::bf16, 1000);
  for (std::int64_t i = 0; i < 1000; ++i) dy.set(i, 1.0);
  Tensor dtable(DType::bf16, 2);
  Workspace workspace(embedding_backward_workspace_bytes(dims));
  embedding_backward(dims, {.tokens = tokens.data(), .dy = dy.data(), .dtable = dtable.data()}, {}, workspace.span());
  EXPECT_EQ(dtable.at(0), 0.0);
  EXPECT_EQ(dtable.at(1), 1000.0);
}

TEST(EmbeddingTokens, OutsideTheVocabularyAreNamed) {
  const EmbeddingDims dims{.rows = 2, .sequence = 2, .width = 3, .vocabulary = 4};
  const Tensor table = random_tensor(DType::f32, 12, "table");
  Tensor y(DType::f32, 6);
  for (const std::int32_t wrong : {-1, 4}) {
    const std::int32_t tokens[] = {0, wrong};
    EXPECT_THROW(embedding_forward(dims, tokens, table.data(), nullptr, y.data()), InternalError);
  }
}

TEST(EmbeddingPositions, BeyondTheTableAreRefused) {
  const EmbeddingDims dims{
      .rows = 4, .sequence = 4, .width = 3, .vocabulary = 4, .first_position = 1, .num_positions = 4};
  const Tensor table = random_tensor(DType::f32, 12, "table");
  const std::int32_t tokens[] = {0, 1, 2, 3};
  Tensor y(DType::f32, 12);
  EXPECT_THROW(embedding_forward(dims, tokens, table.data(), table.data(), y.data()), InternalError);
}

}  // namespace
}  // namespace strata::cpu::test_embedding
