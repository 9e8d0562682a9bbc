/// @file
/// Attributes: order, types, and the text that reads back to the same list.

#include <gmock/gmock.h>

#include <limits>

#include "base/error.hpp"
#include "ir/model/attributes.hpp"

namespace strata::test_attributes {
namespace {

using ::testing::HasSubstr;

std::string error_of(std::string_view text) {
  try {
    parse_attributes(text);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Attributes, KeepsKeysSortedWhateverTheOrderGiven) {
  Attributes a = {{"out", std::int64_t{3}}, {"in", std::int64_t{2}}};
  a.set("epsilon", 1e-5);
  a.set("in", 7);  // replaces
  EXPECT_EQ(to_text(a), "epsilon=1e-05 in=7 out=3");
  EXPECT_EQ(a, (Attributes{{"in", std::int64_t{7}}, {"epsilon", 1e-5}, {"out", std::int64_t{3}}}));
}

TEST(Attributes, IntegersAndRealsAreDistinct) {
  Attributes a;
  a.set("one", 1);
  a.set("real_one", 1.0);
  EXPECT_EQ(to_text(a), "one=1 real_one=1.0");
  EXPECT_EQ(a.integer("one"), 1);
  EXPECT_EQ(a.real("real_one"), 1.0);
  EXPECT_THROW(a.real("one"), InternalError);
  EXPECT_THROW(a.integer("real_one"), InternalError);
  EXPECT_THROW(a.integer("two"), InternalError);
  EXPECT_EQ(a.integer_or("two", 5), 5);
  EXPECT_EQ(a.real_or("two", 5.5), 5.5);
  EXPECT_EQ(a.integer_or("one", 5), 1);
  EXPECT_THROW(a.integer_or("real_one", 5), InternalError);  // of the other type is a bug, not an absence
}

TEST(Attributes, AKeyGivenTwiceIsABug) {
  EXPECT_THROW((Attributes{{"in", std::int64_t{1}}, {"in", std::int64_t{2}}}), InternalError);
}

TEST(Attributes, TextReadsBackExactly) {
  Attributes a;
  a.set("largest", std::numeric_limits<std::int64_t>::max());
  a.set("smallest", std::numeric_limits<std::int64_t>::min());
  a.set("third", 1.0 / 3.0);
  a.set("tiny", std::numeric_limits<double>::denorm_min());
  a.set("huge", std::numeric_limits<double>::max());
  a.set("infinite", -std::numeric_limits<double>::infinity());
  a.set("negative_zero", -0.0);
  const Attributes back = parse_attributes(to_text(a));
  EXPECT_EQ(back, a);
  EXPECT_EQ(to_text(back), to_text(a));
  EXPECT_EQ(parse_attributes("  "), Attributes{});
}

TEST(Attributes, ErrorsNameTheWord) {
  EXPECT_THAT(error_of("in=4 out"), HasSubstr("`out`"));
  EXPECT_THAT(error_of("in=4x"), HasSubstr("`in=4x`"));
  EXPECT_THAT(error_of("in="), HasSubstr("`in=`"));
  EXPECT_THAT(error_of("=4"), HasSubstr("`=4`"));
  EXPECT_THAT(error_of("a=1.5.2"), HasSubstr("`a=1.5.2`"));
  EXPECT_THAT(error_of("a=99999999999999999999"), HasSubstr("`a=99999999999999999999`"));
  EXPECT_THAT(error_of("a=1 a=2"), HasSubstr("`a` is given twice"));
}

}  // namespace
}  // namespace strata::test_attributes
