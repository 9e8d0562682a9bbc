#pragma once

/// @file
/// Text that is written anew must be readable: TOML, JSON and HDF5's strings are UTF-8.

#include <cstddef>
#include <string_view>

namespace strata {

/// How many bytes of @p text are UTF-8 before the first that is not: its size where all are. RFC 3629: nothing in more
/// bytes than it needs, no surrogates, nothing above U+10FFFF.
inline std::size_t utf8_prefix(std::string_view text) {
  const auto byte = [&](std::size_t at) { return at < text.size() ? static_cast<unsigned char>(text[at]) : 0U; };
  std::size_t at = 0;
  while (at < text.size()) {
    const unsigned first = byte(at);
    std::size_t num_more = 0;
    unsigned least = 0x80, most = 0xbf;  // of the second byte
    if (first >= 0xc2 && first <= 0xdf) {
      num_more = 1;
    } else if (first >= 0xe0 && first <= 0xef) {
      num_more = 2;
      if (first == 0xe0) least = 0xa0;
      if (first == 0xed) most = 0x9f;
    } else if (first >= 0xf0 && first <= 0xf4) {
      num_more = 3;
      if (first == 0xf0) least = 0x90;
      if (first == 0xf4) most = 0x8f;
    } else if (first >= 0x80) {
      return at;
    }
    for (std::size_t i = 1; i <= num_more; ++i) {
      if (byte(at + i) < least || byte(at + i) > most) return at;
      least = 0x80;
      most = 0xbf;
    }
    at += num_more + 1;
  }
  return at;
}

}  // namespace strata
