/// @file
/// Views by hand and in numbers, and their pixels against Pillow's.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "base/error.hpp"
#include "data/augmentation.hpp"
#include "data/resample.hpp"
#include "temporary_folder.hpp"

namespace strata::data::test_augmentation {
namespace {

/// Every pixel's channels differ, and no two rows or columns are alike.
std::vector<std::uint8_t> image_of(const Extent& extent) {
  std::vector<std::uint8_t> pixels;
  for (std::int64_t r = 0; r < extent.height; ++r) {
    for (std::int64_t c = 0; c < extent.width; ++c) {
      for (std::int64_t k = 0; k < 3; ++k) {
        pixels.push_back(static_cast<std::uint8_t>(37 * r * r + 101 * c + 59 * k + 11 * r * c));
      }
    }
  }
  return pixels;
}

/// Not normalised.
std::vector<float> seen(const Extent& extent, const ImageView& view, std::int64_t size) {
  std::vector<float> out(static_cast<std::size_t>(size * size * 3));
  resample(image_of(extent), extent, view, {}, size, out);
  return out;
}

ImageView whole(const Extent& extent) {
  return {.height = static_cast<double>(extent.height),
          .width = static_cast<double>(extent.width),
          .row_end = extent.height,
          .column_end = extent.width};
}

/// Pillow rounds to bytes after each direction.
void expect_pillows(const std::vector<float>& ours, const std::vector<int>& pillows) {
  ASSERT_EQ(ours.size(), pillows.size());
  for (std::size_t i = 0; i < ours.size(); ++i) EXPECT_NEAR(ours[i], pillows[i], 1.001) << i;
}

// The numbers are those of Pillow 13's resize(..., BILINEAR) of the same images.

TEST(Resample, ShrinksAsPillowDoes) {
  expect_pillows(seen({7, 5}, whole({7, 5}), 3), {71,  130, 111, 96,  104, 108, 131, 128, 134, 122, 110, 120, 119, 109,
                                                  131, 115, 120, 145, 124, 120, 116, 138, 103, 162, 91,  98,  126});
}

TEST(Resample, GrowsAsPillowDoes) {
  expect_pillows(seen({2, 3}, whole({2, 3}), 4),
                 {0,   59,  118, 63,  122, 181, 139, 102, 161, 202, 5,   64,  9,   68, 127, 74,
                  133, 152, 128, 115, 134, 153, 20,  79,  28,  87,  146, 96,  155, 94, 106, 141,
                  80,  54,  49,  108, 37,  96,  155, 107, 166, 65,  95,  154, 53,  5,  64,  123});
}

TEST(Resample, ACutTakesNothingOfWhatIsBesideIt) {
  const ImageView cut{
      .top = 1, .left = 2, .height = 5, .width = 3, .row_begin = 1, .row_end = 6, .column_begin = 2, .column_end = 5};
  expect_pillows(seen({7, 6}, cut, 3), {62,  121, 70,  69,  128, 187, 186, 98, 157, 105, 164, 167, 126, 42,
                                        101, 117, 176, 179, 171, 83,  142, 66, 125, 184, 71,  130, 79});
}

TEST(Resample, EvaluationSeesTheMiddleOfTheResizedImage) {
  const ImageView view = view_of({}, {20, 15}, 5, 9);
  expect_pillows(seen({20, 15}, view, 5),
                 {133, 85,  126, 133, 139, 105, 158, 107, 121, 109, 140, 131, 109, 161, 110, 129, 100, 123, 161,
                  156, 95,  98,  129, 166, 175, 122, 101, 135, 178, 157, 177, 112, 87,  162, 157, 84,  95,  147,
                  131, 126, 109, 136, 111, 154, 145, 117, 141, 146, 104, 127, 165, 63,  122, 137, 48,  82,  141,
                  163, 48,  107, 85,  144, 171, 80,  139, 166, 73,  107, 159, 79,  94,  153, 145, 88,  147});
  // Halves to even: 3.5 of the rows above are 4; 2.5 are 2.
  EXPECT_EQ(view.top, 4.0 * 20 / 12);
  EXPECT_EQ(view_of({}, {6, 6}, 1, 6).top, 2.0);
}

TEST(Resample, AnImageOfTheRightSizeIsItself) {
  const Extent extent{6, 6};
  const std::vector<std::uint8_t> bytes = image_of(extent);
  EXPECT_EQ(seen(extent, view_of({}, extent, 6, 6), 6), std::vector<float>(bytes.begin(), bytes.end()));
}

TEST(Resample, NormalisesByChannel) {
  const std::vector<std::uint8_t> bytes = {0, 255, 51};
  std::vector<float> out(3);
  resample(bytes, {1, 1}, whole({1, 1}), normalisation_of({0.5F, 0.5F, 0.4F}, {0.25F, 0.5F, 0.1F}), 1, out);
  EXPECT_THAT(out, testing::Pointwise(testing::FloatNear(1e-6F), {-2.0F, 1.0F, -2.0F}));
}

constexpr std::int64_t side = 8;
constexpr Extent square{side, side};

/// (row, column) of the crop's corner in the image, −4 to 4.
std::pair<std::int64_t, std::int64_t> corner(const ImageView& view) {
  return {std::llround(view.top), std::llround(view.left)};
}

TEST(Augmentation, ACropIsTheImageShiftedUnderBlack) {
  const std::vector<std::uint8_t> bytes = image_of(square);
  std::set<std::pair<std::int64_t, std::int64_t>> corners;
  for (std::int64_t place = 0; place < 2000; ++place) {
    const ImageView view = view_of({.augmentation = {.crop = true}, .place = place}, square, side, side);
    const auto [top, left] = corner(view);
    corners.insert({top, left});
    std::vector<float> expected;
    for (std::int64_t r = top; r < top + side; ++r) {
      for (std::int64_t c = left; c < left + side; ++c) {
        const bool inside = r >= 0 && r < side && c >= 0 && c < side;
        for (std::int64_t k = 0; k < 3; ++k) {
          expected.push_back(inside ? bytes[static_cast<std::size_t>((r * side + c) * 3 + k)] : 0.0F);
        }
      }
    }
    ASSERT_EQ(seen(square, view, side), expected) << "at " << top << ", " << left;
  }
  EXPECT_EQ(corners.size(), 81U);  // of 9 × 9, and none beyond
  EXPECT_EQ(*corners.begin(), std::pair(std::int64_t{-4}, std::int64_t{-4}));
  EXPECT_EQ(*corners.rbegin(), std::pair(std::int64_t{4}, std::int64_t{4}));
}

TEST(Augmentation, EveryOtherImageIsMirrored) {
  const std::vector<std::uint8_t> bytes = image_of(square);
  const std::vector<float> straight(bytes.begin(), bytes.end());
  std::vector<float> mirrored;
  for (std::int64_t r = 0; r < side; ++r) {
    for (std::int64_t c = side - 1; c >= 0; --c) {
      for (std::int64_t k = 0; k < 3; ++k) mirrored.push_back(bytes[static_cast<std::size_t>((r * side + c) * 3 + k)]);
    }
  }
  int num_mirrored = 0;
  for (std::int64_t place = 0; place < 1000; ++place) {
    const ImageView view = view_of({.augmentation = {.flip = true}, .place = place}, square, side, side);
    ASSERT_EQ(seen(square, view, side), view.is_mirrored ? mirrored : straight);
    num_mirrored += view.is_mirrored ? 1 : 0;
  }
  EXPECT_NEAR(num_mirrored, 500, 80);  // five deviations
}

TEST(Augmentation, ResizedCropsHaveTheAreasAndAspectsOfTheirDefinition) {
  constexpr Extent photo{300, 400};
  double least = 1.0, most = 0.0, sum_of_logs = 0.0;
  for (std::int64_t place = 0; place < 2000; ++place) {
    const ImageView view = view_of({.augmentation = {.resized_crop = true}, .place = place}, photo, 224, 224);
    ASSERT_GE(view.top, 0.0);
    ASSERT_GE(view.left, 0.0);
    ASSERT_LE(view.top + view.height, 300.0);
    ASSERT_LE(view.left + view.width, 400.0);
    EXPECT_EQ(static_cast<double>(view.row_begin), view.top);
    EXPECT_EQ(static_cast<double>(view.row_end), view.top + view.height);
    EXPECT_EQ(static_cast<double>(view.column_begin), view.left);
    EXPECT_EQ(static_cast<double>(view.column_end), view.left + view.width);
    const double aspect = view.width / view.height;
    ASSERT_GT(aspect, 0.74);
    ASSERT_LT(aspect, 1.35);
    sum_of_logs += std::log(aspect);
    const double area = view.height * view.width / (300.0 * 400.0);
    least = std::min(least, area);
    most = std::max(most, area);
  }
  EXPECT_NEAR(least, 0.08, 0.005);
  EXPECT_GT(most, 0.9);
  EXPECT_LT(most, 1.001);
  // Log-uniform, but large areas that are higher than the image are drawn again: the mean is a little above zero.
  EXPECT_NEAR(sum_of_logs / 2000.0, 0.02, 0.02);
}

TEST(Augmentation, WhereNoTryFitsTheMiddleIsTaken) {
  // No rectangle of 8 % of the area is as narrow as this.
  const ImageView wide = view_of({.augmentation = {.resized_crop = true}, .place = 3}, {10, 1000}, 4, 4);
  EXPECT_EQ(wide, (ImageView{.top = 0,
                             .left = 493,
                             .height = 10,
                             .width = 13,
                             .row_begin = 0,
                             .row_end = 10,
                             .column_begin = 493,
                             .column_end = 506}));
  const ImageView high = view_of({.augmentation = {.resized_crop = true}, .place = 3}, {1000, 10}, 4, 4);
  EXPECT_EQ(high, (ImageView{.top = 493,
                             .left = 0,
                             .height = 13,
                             .width = 10,
                             .row_begin = 493,
                             .row_end = 506,
                             .column_begin = 0,
                             .column_end = 10}));
}

TEST(Augmentation, IsAFunctionOfSeedAndPlace) {
  const Augmentation how{.resized_crop = true, .flip = true, .seed = 7};
  const auto at = [](const Augmentation& a, std::int64_t place) { return view_of({a, place}, {30, 40}, 8, 8); };
  EXPECT_EQ(at(how, 5), at(how, 5));
  EXPECT_NE(at(how, 5), at(how, 6));
  EXPECT_NE(at(how, 5), at(how, 5 + (std::int64_t{1} << 40U)));
  Augmentation other = how;
  other.seed = 8;
  EXPECT_NE(at(how, 5), at(other, 5));
}

TEST(Augmentation, WordsAreThoseOfTheOption) {
  EXPECT_EQ(parse_augmentation(std::vector<std::string>{"flip", "crop"}, 3),
            (Augmentation{.crop = true, .flip = true, .seed = 3}));
  EXPECT_EQ(parse_augmentation(std::vector<std::string>{"resized_crop"}, 1), (Augmentation{.resized_crop = true}));
  EXPECT_FALSE(parse_augmentation({}, 4).varies());
  EXPECT_EQ(user_error([] { parse_augmentation(std::vector<std::string>{"rotate"}, 1); }),
            "unknown augmentation \"rotate\"; accepted: crop, resized_crop, flip");
}

}  // namespace
}  // namespace strata::data::test_augmentation
