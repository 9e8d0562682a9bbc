/// @file
/// bf16 rounds to nearest even and widens exactly.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/dtype.hpp"
#include "base/error.hpp"

namespace strata::test_dtype {
namespace {

float through_bf16(float value) { return static_cast<float>(bf16(value)); }

TEST(Bf16, ExactValuesStay) {
  for (const float value : {0.0F, -0.0F, 1.0F, -2.5F, 0x1p100F, 0x1p-100F, 255.0F})
    EXPECT_EQ(through_bf16(value), value);
}

TEST(Bf16, TiesGoToEven) {
  EXPECT_EQ(through_bf16(1.0F + 0x1p-8F), 1.0F);
  EXPECT_EQ(through_bf16(1.0F + 3 * 0x1p-8F), 1.0F + 0x1p-6F);
  EXPECT_EQ(through_bf16(1.0F + 0x1p-8F + 0x1p-20F), 1.0F + 0x1p-7F);
  EXPECT_EQ(through_bf16(-1.0F - 0x1p-8F), -1.0F);
}

TEST(Bf16, InfinityAndNan) {
  EXPECT_EQ(through_bf16(std::numeric_limits<float>::infinity()), std::numeric_limits<float>::infinity());
  EXPECT_EQ(through_bf16(std::numeric_limits<float>::max()), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(through_bf16(std::numeric_limits<float>::quiet_NaN())));
}

TEST(DType, NamesAndSizes) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::i32, DType::u8}) {
    EXPECT_EQ(parse_dtype(to_string(dtype)), dtype);
  }
  EXPECT_EQ(size_of(DType::bf16), 2);
  EXPECT_THROW(parse_dtype("fp8"), UserError);
}

}  // namespace
}  // namespace strata::test_dtype
