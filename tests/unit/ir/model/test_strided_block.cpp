/// @file
/// Parts of tensors: which elements, in which order, in how long runs.

#include <gmock/gmock.h>

#include "ir/model/strided_block.hpp"

namespace strata::test_strided_block {
namespace {

using testing::ElementsAre;

TEST(StridedBlock, ColumnsAreRunsInTheirPlaces) {
  const StridedBlock block = strided(ColumnBlock{.first = 3, .size = 4, .row = 10});
  for (std::int64_t begin = 0; begin <= 20; ++begin) {
    for (std::int64_t n = 0; begin + n <= 20; ++n) {
      std::int64_t next = 0;
      block.for_runs(begin, n, [&](std::int64_t in_whole, std::int64_t at, std::int64_t count) {
        EXPECT_EQ(at, next);
        EXPECT_GT(count, 0);
        for (std::int64_t i = 0; i < count; ++i) {
          const std::int64_t element = begin + at + i;
          EXPECT_EQ(in_whole + i, element / 4 * 10 + 3 + element % 4);
          EXPECT_EQ(block.in_whole(element), in_whole + i);
        }
        next += count;
      });
      EXPECT_EQ(next, n);
    }
  }
  const StridedBlock whole;
  whole.for_runs(5, 7, [](std::int64_t in_whole, std::int64_t at, std::int64_t count) {
    EXPECT_THAT((std::vector{in_whole, at, count}), ElementsAre(5, 0, 7));
  });
}

/// All ways of holding one or all of each digit, against counting.
TEST(StridedBlock, HoldsWhatItsDigitsSay) {
  constexpr std::int64_t sizes[] = {2, 3, 1, 2, 4};
  constexpr int num_digits = 5;
  for (int held = 0; held < 1 << num_digits; ++held) {
    std::vector<Digit> digits;
    for (int d = 0; d < num_digits; ++d) digits.push_back({sizes[d], (held >> d & 1) != 0 ? sizes[d] - 1 : -1});
    const StridedBlock block = block_of(digits);
    std::int64_t num_held = 0;
    for (std::int64_t element = 0; element < 48; ++element) {
      std::int64_t rest = element;
      bool is_held = true;
      for (int d = num_digits; d-- > 0;) {
        is_held = is_held && (digits[static_cast<std::size_t>(d)].index < 0 ||
                              rest % sizes[d] == digits[static_cast<std::size_t>(d)].index);
        rest /= sizes[d];
      }
      if (!is_held) continue;
      EXPECT_EQ(block.in_whole(num_held++), element);
    }
    std::int64_t in_runs = 0;
    block.for_runs(0, num_held, [&](std::int64_t in_whole, std::int64_t at, std::int64_t count) {
      EXPECT_EQ(at, in_runs);
      for (std::int64_t i = 0; i < count; ++i) EXPECT_EQ(block.in_whole(at + i), in_whole + i);
      in_runs += count;
    });
    EXPECT_EQ(in_runs, num_held);
  }
}

TEST(StridedBlock, IsTheWholeWhereNothingIsCut) {
  EXPECT_TRUE(block_of(std::vector<Digit>{{4, -1}, {1, 0}, {6, -1}}).is_whole());
  EXPECT_EQ(block_of(std::vector<Digit>{{4, 1}, {6, -1}}), (StridedBlock{.first = 6, .run = 6}));
}

/// Rows of a matrix of which columns are held in runs that end with the row, and rows that end with the matrix:
/// whatever the sizes, the block is what a loop over all elements finds.
TEST(StridedBlock, HoldsPartsOfDimsThatTheirDigitsDoNotFill) {
  for (std::int64_t rows = 1; rows <= 7; ++rows) {
    for (std::int64_t columns = 1; columns <= 11; ++columns) {
      for (std::int64_t held_row = -1; held_row < 2; ++held_row) {
        for (std::int64_t held_column = -1; held_column < 3; ++held_column) {
          const std::vector<DimPart> dims = {part_of({{2, held_row}, {4, -1}}, rows),
                                             part_of({{2, -1}, {3, held_column}, {2, -1}}, columns)};
          const StridedBlock block = block_of(dims);
          std::vector<std::int64_t> expected, found;
          for (std::int64_t r = 0; r < rows; ++r) {
            for (std::int64_t c = 0; c < columns; ++c) {
              const bool is_held = (held_row < 0 || r / 4 == held_row) && (held_column < 0 || c / 2 % 3 == held_column);
              if (is_held) expected.push_back(r * columns + c);
            }
          }
          const auto num_held = static_cast<std::int64_t>(expected.size());
          ASSERT_EQ(dims[0].count * dims[1].count, num_held);
          for (std::int64_t i = 0; i < num_held; ++i) found.push_back(block.in_whole(i));
          EXPECT_EQ(found, expected);
          found.clear();
          block.for_runs(0, num_held, [&](std::int64_t in_whole, std::int64_t at, std::int64_t count) {
            EXPECT_EQ(at, std::ssize(found));
            for (std::int64_t i = 0; i < count; ++i) found.push_back(in_whole + i);
          });
          EXPECT_EQ(found, expected);
        }
      }
    }
  }
}

}  // namespace
}  // namespace strata::test_strided_block
