/// @file
/// The TOML value: order of keys, lines, spellings that read back.

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "base/toml_value.hpp"

namespace strata::test_toml_value {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> keys_of(const TomlValue& table) {
  std::vector<std::string> keys;
  for (const TomlEntry& entry : table.table()) {
    keys.push_back(entry.key);
  }
  return keys;
}

TEST(TomlValue, KeysKeepTheOrderOfTheFile) {
  const TomlValue root = parse_toml("z = 1\nm = { c = 1, a = 2, b = 3 }\na = 2\n[t]\n[s]\n", "a.toml");
  EXPECT_THAT(keys_of(root), ElementsAre("z", "m", "a", "t", "s"));
  EXPECT_THAT(keys_of(root.table()[1].value), ElementsAre("c", "a", "b"));
  EXPECT_EQ(root.table()[2].line, 3);
}

TEST(TomlValue, RealsReadBackExactlyAndAreNeverIntegers) {
  for (const double value : {0.0, -0.0, 1.0, 0.1, 1e-8, 1e300, 5e-324, 123456789.0, 1.0 / 3.0, -2.5e17,
                             std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()}) {
    const TomlValue read = parse_toml_value(toml_real(value), "test");
    ASSERT_TRUE(std::holds_alternative<double>(read.data)) << toml_real(value);
    EXPECT_EQ(std::get<double>(read.data), value);
    EXPECT_EQ(std::signbit(std::get<double>(read.data)), std::signbit(value));
  }
  EXPECT_TRUE(std::isnan(std::get<double>(parse_toml_value(toml_real(std::nan("")), "test").data)));
}

TEST(TomlValue, EveryByteOfAStringReadsBack) {
  std::string text = "é \"quoted\" \\ ";
  for (char c = 1; c < 127; ++c) {
    text += c;
  }
  text += '\x7f';
  EXPECT_EQ(std::get<std::string>(parse_toml_value(toml_string(text), "test").data), text);
}

TEST(TomlValue, TextOfNestedValues) {
  const char* text = "{ a = [1, 2.5, \"x\"], \"b c\" = { d = true }, e = {}, f = [] }";
  EXPECT_EQ(toml_text(parse_toml_value(text, "test")), text);
}

TEST(TomlReader, ReadsEachKindAndRefusesTheRest) {
  const TomlValue root = parse_toml("a = true\nb = 3\nc = 0.5\nd = \"x\"\ne = 2\n", "a.toml");
  TomlReader reader(root, "part", "a.toml");
  bool a = false;
  int b = 0;
  double c = 0.0, e = 0.0, absent = 7.0;
  std::string d;
  reader.read("a", a);
  reader.read("b", b);
  reader.read("c", c);
  reader.read("d", d);
  reader.read("absent", absent);
  EXPECT_TRUE(a);
  EXPECT_EQ(b, 3);
  EXPECT_EQ(c, 0.5);
  EXPECT_EQ(d, "x");
  EXPECT_EQ(absent, 7.0);
  try {
    reader.finish();
    FAIL() << "e is unknown";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("a.toml:5: part.e: unknown key; did you mean \"a\"?; accepted: a, b, c, d, absent"));
  }
  reader.read("e", e);
  EXPECT_EQ(e, 2.0);
  EXPECT_NO_THROW(reader.finish());
}

TEST(TomlValue, WhatIsNoUtf8IsRefusedByLineAndKey) {
  const auto refusal = [](const std::string& text) {
    try {
      parse_toml(text, "f.toml");
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(refusal("name = \"x\"\ntitle = \"gr\xfc\xdf\"\n"), "f.toml:2: title: byte 0xfc; accepted: UTF-8");
  EXPECT_EQ(refusal("[data]\n\"a.b\" = ['\xff']"), "f.toml:2: \"a.b\": byte 0xff; accepted: UTF-8");
  EXPECT_EQ(refusal("# a = \xff\n"), "f.toml:1: byte 0xff; accepted: UTF-8");
  EXPECT_EQ(refusal("title = \"\"\"\n\xe2\x82\"\"\""), "f.toml:2: byte 0xe2; accepted: UTF-8");
  EXPECT_EQ(refusal("title = \"gr\xc3\xbc\xc3\x9f\"\n"), "no error");
}

/// The library goes down by recursion, and so does all that reads what it made.
TEST(TomlValue, NothingIsTooDeep) {
  constexpr int many = 50'000;
  const auto repeated = [](std::string_view text, int count) {
    std::string all;
    for (int i = 0; i < count; ++i) all += text;
    return all;
  };
  const auto refusal = [](const std::string& text) {
    try {
      parse_toml(text, "deep.toml");
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(refusal("a = 1\n[b" + repeated(".b", many) + "]\n"),
              HasSubstr("deep.toml:2: a key of many parts; accepted: 32 at most"));
  EXPECT_THAT(refusal("x = " + repeated("[", many)), HasSubstr("deep.toml:1: lists and tables inside each other"));
  EXPECT_THAT(refusal("x = " + repeated("{ a.b.c.d.e = ", 20) + "1" + repeated(" }", 20)),
              HasSubstr("deep.toml:1: lists and tables inside each other"));
  EXPECT_EQ(refusal("x = " + repeated("[", 31) + repeated("]", 31)), "no error");
  // Dots and brackets of strings, comments and numbers are none.
  EXPECT_EQ(refusal("a = \"" + repeated("[.", 100) + "\"\nb = '" + repeated("{.", 100) + "'\nc = \"\"\"\n" +
                    repeated("[.\n", 100) + "\\\"\"\"\"\"\"\n# " + repeated("[.", 100) + "\nd = [" +
                    repeated("1.5, ", 100) + "]\n"),
            "no error");
}

}  // namespace
}  // namespace strata::test_toml_value
