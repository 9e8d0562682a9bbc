/// @file
/// What is UTF-8, at the borders of RFC 3629's table.

#include <gtest/gtest.h>

#include <string>

#include "base/one_line.hpp"
#include "base/utf8.hpp"

namespace strata::test_utf8 {
namespace {

TEST(Utf8, EveryLengthIsRead) {
  for (const std::string text : {"", "a\x7f", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
                                 "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf",
                                 "gr\xc3\xbc\xc3\x9f"
                                 "e \xe2\x82\xac \xf0\x9f\x9a\x80"}) {
    EXPECT_EQ(utf8_prefix(text), text.size()) << text;
  }
  EXPECT_EQ(utf8_prefix(std::string(3, '\0')), 3U);
}

TEST(Utf8, EverythingElseEndsIt) {
  for (const std::string bytes :
       {"\x80", "\xbf", "\xc0\xaf", "\xc1\xbf", "\xc3", "\xc3(", "\xe0\x9f\xbf", "\xe2\x82", "\xe2(\xac",
        "\xed\xa0\x80", "\xf0\x8f\xbf\xbf", "\xf0\x9f\x9a", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff"}) {
    EXPECT_EQ(utf8_prefix("a\xc3\xbc" + bytes + "b"), 3U) << bytes;
  }
}

}  // namespace
// What a terminal would obey, and what it could not show, is told by its bytes.
TEST(Utf8, WhatIsPrintedIsReadable) {
  EXPECT_EQ(printable("a\tb\nc \xc3\xbc \xe2\x82\xac"), "a\tb\nc \xc3\xbc \xe2\x82\xac");
  EXPECT_EQ(printable("\x1b[2J\x7f"), "\\x1b[2J\\x7f");
  EXPECT_EQ(printable("\xc2\x9b"
                      "2J\xc2\xa0"),
            "\\xc2\\x9b2J\xc2\xa0");
  EXPECT_EQ(printable("a\xff"
                      "b\xc3"),
            "a\\xff"
            "b\\xc3");
  EXPECT_EQ(printable(""), "");
}

}  // namespace strata::test_utf8
