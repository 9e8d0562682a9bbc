#pragma once

/// @file
/// Messages of others for lists that have a line an entry.

#include <cstddef>
#include <string>
#include <string_view>

#include "base/utf8.hpp"

namespace strata {

/// @p text with each run of white space and control characters as one space, none at the ends.
inline std::string one_line(std::string_view text) {
  std::string line;
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (code > 0x20 && code != 0x7f) {
      line += c;
    } else if (!line.empty() && line.back() != ' ') {
      line += ' ';
    }
  }
  if (line.ends_with(' ')) line.pop_back();
  return line;
}

/// @p text with control characters, but line breaks and tabs, and what is not UTF-8 as `\xNN`: what files of others
/// hold may end up in messages, and a terminal obeys what stands behind an escape.
inline std::string printable(std::string_view text) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string shown;
  const auto escape = [&](char c) {
    const auto code = static_cast<unsigned char>(c);
    shown += {'\\', 'x', digits[code >> 4U], digits[code & 0xFU]};
  };
  while (!text.empty()) {
    const std::string_view readable = text.substr(0, utf8_prefix(text));
    for (std::size_t i = 0; i < readable.size(); ++i) {
      const char c = readable[i];
      const auto code = static_cast<unsigned char>(c);
      // U+0080 to U+009F are control characters too, of two bytes.
      const bool wide_control = c == '\xc2' && static_cast<unsigned char>(readable[i + 1]) < 0xa0;
      if ((code < 0x20 && c != '\n' && c != '\t') || code == 0x7f || wide_control) {
        escape(c);
        if (wide_control) escape(readable[++i]);
      } else {
        shown += c;
      }
    }
    text.remove_prefix(readable.size());
    if (!text.empty()) {
      escape(text.front());
      text.remove_prefix(1);
    }
  }
  return shown;
}

}  // namespace strata
