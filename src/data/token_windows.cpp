/// @file
/// Window to file by bisection of the running count: no index a window is stored.

#include "data/token_windows.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace strata::data {

TokenWindows::TokenWindows(std::vector<TokenFile> files, std::int64_t sequence_length, std::int64_t vocabulary)
    : files_(std::move(files)), first_window_{0}, sequence_length_(sequence_length), vocabulary_(vocabulary) {
  STRATA_INVARIANT(!files_.empty(), "no token file");
  for (const TokenFile& file : files_) {
    const std::int64_t num_windows = file.num_tokens() / (sequence_length_ + 1);
    if (num_windows == 0) {
      throw UserError(fmt::format(
          "token file {} ({} bytes, {}) holds {} tokens, fewer than one window of sequence length {} + 1 = {}",
          file.file().path(), file.file().size_bytes(), to_string(file.format()), file.num_tokens(), sequence_length_,
          sequence_length_ + 1));
    }
    first_window_.push_back(first_window_.back() + num_windows);
  }
}

void TokenWindows::tokens(std::int64_t sample, std::span<std::int32_t> input, std::span<std::int32_t> target) const {
  STRATA_INVARIANT(sample >= 0 && sample < num_samples(), fmt::format("sample {} of {}", sample, num_samples()));
  STRATA_INVARIANT(
      (input.empty() || std::ssize(input) == sequence_length_) &&
          (target.empty() || std::ssize(target) == sequence_length_),
      fmt::format("spans of {} and {} for sequence length {}", input.size(), target.size(), sequence_length_));
  const auto after = std::upper_bound(first_window_.begin(), first_window_.end(), sample);
  const auto index = static_cast<std::size_t>(after - first_window_.begin()) - 1;
  const TokenFile& file = files_[index];
  const std::int64_t first_token = (sample - first_window_[index]) * (sequence_length_ + 1);
  // Input first, so that the first bad id of a window is the one named.
  if (!input.empty()) file.read(first_token, input, vocabulary_);
  if (!target.empty()) file.read(first_token + 1, target, vocabulary_);
}

Provenance TokenWindows::describe() const {
  Provenance provenance{.format = files_.front().format(), .num_samples = num_samples()};
  std::int64_t num_tokens = 0;
  for (const TokenFile& file : files_) {
    provenance.files.push_back({file.file().path(), file.file().size_bytes(), sampled_checksum(file.file())});
    num_tokens += file.num_tokens();
  }
  provenance.detail = fmt::format("{} tokens, windows of {} + 1, {} tokens of tails dropped, vocabulary {}", num_tokens,
                                  sequence_length_, num_tokens - num_samples() * (sequence_length_ + 1), vocabulary_);
  return provenance;
}

}  // namespace strata::data
