#pragma once

/// @file
/// Messages of others for lists that have a line an entry.

#include <string>
#include <string_view>

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

/// @p text with control characters as `\xNN`, but line breaks and tabs: what files of others hold may end up in
/// messages, and a terminal obeys what stands behind an escape.
inline std::string printable(std::string_view text) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string shown;
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if ((code < 0x20 && c != '\n' && c != '\t') || code == 0x7f) {
      shown += {'\\', 'x', digits[code >> 4U], digits[code & 0xFU]};
    } else {
      shown += c;
    }
  }
  return shown;
}

}  // namespace strata
