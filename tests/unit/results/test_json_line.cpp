/// @file
/// Lines of JSONL are what a JSON library reads back: every number with its bits, every text.

#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <nlohmann/json.hpp>

#include "results/json_line.hpp"

namespace strata::results::test::test_json_line {
namespace {

template <class Value>
std::string json_of(const Value& value) {
  std::string text;
  append_json(text, value);
  return text;
}

TEST(JsonLine, RealsComeBackWithTheirBits) {
  for (const double value :
       {0.0, -0.0, 1.0, -3.0, 0.1, 1e22, 1e-7, 123456789012345678.0, std::numeric_limits<double>::max(),
        std::numeric_limits<double>::denorm_min(), 0.1 + 0.2}) {
    const auto json = nlohmann::json::parse(json_of(value));
    EXPECT_TRUE(json.is_number_float()) << json_of(value) << ": a whole number is a real too";
    EXPECT_EQ(std::bit_cast<std::uint64_t>(json.get<double>()), std::bit_cast<std::uint64_t>(value)) << value;
  }
  EXPECT_EQ(json_of(1795791189.5816908), "1795791189.5816908");
  EXPECT_EQ(json_of(512.0), "512.0");
  EXPECT_EQ(json_of(std::numeric_limits<double>::quiet_NaN()), "null");
  EXPECT_EQ(json_of(-std::numeric_limits<double>::infinity()), "null");
}

TEST(JsonLine, IntegersAndTexts) {
  EXPECT_EQ(json_of(std::numeric_limits<std::int64_t>::min()), "-9223372036854775808");
  EXPECT_EQ(json_of(std::string_view("a \"word\"\n")), R"("a \"word\"\n")");
  EXPECT_EQ(nlohmann::json::parse(json_of(std::string_view("no UTF-8: \xff"))).get<std::string>(),
            "no UTF-8: \xef\xbf\xbd");
}

TEST(JsonLine, ColumnsFollowTheKind) {
  PredictionRow row;
  row.metric = "step_seconds_max";
  row.unit = "s";
  row.source = "simulator";
  const std::string line = json_line("prediction", prediction_columns(), row);
  EXPECT_TRUE(line.starts_with(R"({"kind":"prediction","metric":"step_seconds_max",)")) << line;
  EXPECT_TRUE(line.ends_with("}\n")) << line;
  EXPECT_EQ(nlohmann::json::parse(line).size(), 1 + prediction_columns().size());
}

}  // namespace
}  // namespace strata::results::test::test_json_line
