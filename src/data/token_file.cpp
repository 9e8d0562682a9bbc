/// @file
/// Headers are believed only when the file's size agrees; ids only when the vocabulary holds them.

#include "data/token_file.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "base/error.hpp"

namespace strata::data {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian and read as they lie");

struct LlmcKind {
  std::int32_t magic;
  std::int32_t version;
  std::int64_t token_bytes;
};
constexpr std::array<LlmcKind, 2> llmc_kinds = {LlmcKind{20240520, 1, 2},   // GPT-2, uint16
                                                LlmcKind{20240801, 7, 4}};  // LLaMA 3, uint32
constexpr std::size_t llmc_header_bytes = 1024;                             // int32[256]: magic, version, count, zeros

/// Word `index` of an llm.c header.
std::int32_t header_word(const MappedFile& file, std::size_t index) {
  std::int32_t word = 0;
  std::memcpy(&word, file.bytes().data() + index * sizeof(word), sizeof(word));
  return word;
}

const LlmcKind* llmc_kind(const MappedFile& file) {
  if (file.bytes().size() < sizeof(std::int32_t)) {
    return nullptr;
  }
  for (const LlmcKind& kind : llmc_kinds) {
    if (header_word(file, 0) == kind.magic) {
      return &kind;
    }
  }
  return nullptr;
}

/// Checks an llm.c header against the file's size. @returns bytes a token.
std::int64_t check_llmc(const MappedFile& file) {
  if (file.bytes().size() < llmc_header_bytes) {
    throw UserError(fmt::format("token file {} has {} bytes, fewer than llm.c's header of {}", file.path(),
                                file.size_bytes(), llmc_header_bytes));
  }
  const LlmcKind* kind = llmc_kind(file);
  if (kind == nullptr) {
    throw UserError(
        fmt::format("token file {} begins with {}, which is not llm.c's magic number {} (uint16) or {} (uint32)",
                    file.path(), header_word(file, 0), llmc_kinds[0].magic, llmc_kinds[1].magic));
  }
  if (header_word(file, 1) != kind->version) {
    throw UserError(fmt::format("token file {} has version {} under llm.c's magic number {}; only version {} is known",
                                file.path(), header_word(file, 1), kind->magic, kind->version));
  }
  const std::int64_t num_tokens = header_word(file, 2);
  const std::int64_t expected_bytes = static_cast<std::int64_t>(llmc_header_bytes) + num_tokens * kind->token_bytes;
  if (num_tokens < 0 || file.size_bytes() != expected_bytes) {
    throw UserError(
        fmt::format("token file {} has {} bytes, but its header announces {} tokens of {} bytes, {} bytes in all: {}",
                    file.path(), file.size_bytes(), num_tokens, kind->token_bytes, expected_bytes,
                    file.size_bytes() < expected_bytes ? "it is truncated" : "its header is wrong"));
  }
  return kind->token_bytes;
}

/// Widens `ids.size()` tokens of type T at `source` (any alignment) and finds the largest as unsigned.
template <typename T>
std::uint32_t widen(const std::uint8_t* source, std::span<std::int32_t> ids) {
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    T token = 0;
    std::memcpy(&token, source + i * sizeof(T), sizeof(T));
    largest = std::max(largest, std::uint32_t{token});
    ids[i] = static_cast<std::int32_t>(token);
  }
  return largest;
}

}  // namespace

Format detect_token_format(const MappedFile& file) {
  if (llmc_kind(file) != nullptr) {
    return Format::llmc;
  }
  if (file.path().ends_with(".bin")) {
    throw UserError(fmt::format(
        "token file {} has no llm.c header, so its format cannot be told: set data.format to raw_u16, raw_u32 or text",
        file.path()));
  }
  return Format::text;
}

TokenFile::TokenFile(MappedFile file, Format format, bool end_of_text)
    : file_(std::move(file)), format_(format), end_of_text_(end_of_text) {
  STRATA_INVARIANT(!end_of_text || format == Format::text, "only text has no end-of-text tokens of its own");
  switch (format) {
    case Format::text: token_bytes_ = 1; break;
    case Format::raw_u16: token_bytes_ = 2; break;
    case Format::raw_u32: token_bytes_ = 4; break;
    case Format::llmc:
      token_bytes_ = check_llmc(file_);
      header_bytes_ = static_cast<std::int64_t>(llmc_header_bytes);
      break;
    case Format::automatic:
    case Format::cifar10:
    case Format::image_folder:
    case Format::synthetic:
      STRATA_INVARIANT(false, fmt::format("{} is not a format of a token file", to_string(format)));
  }
  const std::int64_t payload_bytes = file_.size_bytes() - header_bytes_;
  if (payload_bytes % token_bytes_ != 0) {
    throw UserError(fmt::format("token file {} has {} bytes, which is no multiple of the {} bytes of a {} token",
                                file_.path(), file_.size_bytes(), token_bytes_, to_string(format)));
  }
  num_tokens_ = payload_bytes / token_bytes_ + (end_of_text ? 1 : 0);
}

void TokenFile::read(std::int64_t first, std::span<std::int32_t> ids, std::int64_t vocabulary) const {
  STRATA_INVARIANT(first >= 0 && first + std::ssize(ids) <= num_tokens_,
                   fmt::format("tokens [{}, {}) of {}", first, first + std::ssize(ids), num_tokens_));
  const std::int64_t num_stored = num_tokens_ - (end_of_text_ ? 1 : 0);
  const bool at_end = first + std::ssize(ids) > num_stored;
  const std::span<std::int32_t> stored = at_end ? ids.first(ids.size() - 1) : ids;
  const std::uint8_t* source = file_.bytes().data() + header_bytes_ + first * token_bytes_;
  std::uint32_t largest = 0;
  switch (token_bytes_) {
    case 1: largest = widen<std::uint8_t>(source, stored); break;
    case 2: largest = widen<std::uint16_t>(source, stored); break;
    default: largest = widen<std::uint32_t>(source, stored); break;
  }
  if (at_end) {
    ids.back() = end_of_text_token;
    largest = std::max(largest, static_cast<std::uint32_t>(end_of_text_token));
  }
  if (largest < vocabulary) {
    return;
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto id = static_cast<std::uint32_t>(ids[i]);
    if (id >= vocabulary) {
      throw UserError(fmt::format("token file {}: token {} of {} has id {}, but model.vocabulary = {} (ids 0 to {})",
                                  file_.path(), first + static_cast<std::int64_t>(i), num_tokens_, id, vocabulary,
                                  vocabulary - 1));
    }
  }
}

}  // namespace strata::data
