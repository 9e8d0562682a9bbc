#pragma once

/// @file
/// One file of tokens, whatever its format, as a numbered sequence of ids. The header and the size are checked once, at
/// load; ids are widened as they are read.
/// llm.c's format: dev/data/data_common.py of github.com/karpathy/llm.c.

#include <cstdint>
#include <span>
#include <string>

#include "data/format.hpp"
#include "data/mapped_file.hpp"

namespace strata::data {

/// First token id that is no byte: follows a text's last byte when end_of_text is asked for.
inline constexpr std::int32_t end_of_text_token = 256;

/// What `automatic` means for one file. @throws UserError when the file does not say its format.
Format detect_token_format(const MappedFile& file);

class TokenFile {
 public:
  /// `format` is text, raw_u16, raw_u32 or llmc.
  /// @throws UserError: size no multiple of the token width, wrong magic or version, header's count unequal to the
  /// size's.
  TokenFile(MappedFile file, Format format, bool end_of_text);

  const MappedFile& file() const { return file_; }
  Format format() const { return format_; }
  std::int64_t num_tokens() const { return num_tokens_; }
  /// 1, 2 or 4.
  std::int64_t token_bytes() const { return token_bytes_; }

  /// Copies tokens [first, first + ids.size()) into `ids`.
  /// @throws UserError naming the file and the position of the first id outside [0, vocabulary).
  void read(std::int64_t first, std::span<std::int32_t> ids, std::int64_t vocabulary) const;

 private:
  MappedFile file_;
  Format format_;
  bool end_of_text_;
  std::int64_t header_bytes_ = 0;
  std::int64_t token_bytes_ = 1;
  std::int64_t num_tokens_ = 0;  // the end-of-text token included
};

}  // namespace strata::data
