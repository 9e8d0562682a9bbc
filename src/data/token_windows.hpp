#pragma once

/// @file
/// Token files cut into windows. Every file is cut by itself, so that no window mixes two files and adding a file
/// moves no window of the files before it.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/dataset.hpp"
#include "data/token_file.hpp"

namespace strata::data {

class TokenWindows final : public TokenDataset {
 public:
  /// @throws UserError for a file too short for one window.
  TokenWindows(std::vector<TokenFile> files, std::int64_t sequence_length, std::int64_t vocabulary);

  std::int64_t num_samples() const override { return first_window_.back(); }
  std::int64_t sequence_length() const override { return sequence_length_; }
  std::int64_t vocabulary() const override { return vocabulary_; }
  void tokens(std::int64_t sample, std::span<std::int32_t> input, std::span<std::int32_t> target) const override;
  Provenance describe() const override;

 private:
  std::vector<TokenFile> files_;
  std::vector<std::int64_t> first_window_;  // of each file, then their number
  std::int64_t sequence_length_;
  std::int64_t vocabulary_;
};

}  // namespace strata::data
