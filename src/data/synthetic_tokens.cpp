/// @file
/// One Philox block a position and one a successor table row; nothing is stored but the options.

#include "data/synthetic_tokens.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "base/error.hpp"
#include "base/random.hpp"

namespace strata::data {
namespace {

/// One key for the chain and one for the samples, so that no word of either is a word of the other.
std::array<std::uint32_t, 2> key_of(std::uint64_t seed, std::string_view name) {
  const std::uint64_t key = seed ^ stream_of(name);
  return {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32U)};
}

/// First id and number of ids of an octave.
struct Octave {
  std::uint32_t first;
  std::uint32_t width;
};
Octave octave_of(std::uint32_t index, std::int64_t vocabulary) {
  const std::int64_t first = (std::int64_t{1} << index) - 1;
  const std::int64_t last = std::min((std::int64_t{2} << index) - 1, vocabulary);
  return {static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(last - first)};
}

}  // namespace

SyntheticTokens::SyntheticTokens(std::int64_t num_samples, std::int64_t sequence_length, std::int64_t vocabulary,
                                 std::uint64_t seed)
    : num_samples_(num_samples),
      sequence_length_(sequence_length),
      vocabulary_(vocabulary),
      seed_(seed),
      num_octaves_(static_cast<std::uint32_t>(std::bit_width(static_cast<std::uint64_t>(vocabulary)))) {}

std::int32_t SyntheticTokens::draw(std::uint32_t word) const {
  // The product's upper half chooses the octave; its lower half is what remains of the word's randomness.
  const std::uint64_t scaled = std::uint64_t{word} * num_octaves_;
  const Octave octave = octave_of(static_cast<std::uint32_t>(scaled >> 32U), vocabulary_);
  const std::uint64_t offset = (scaled & 0xffffffffU) * octave.width >> 32U;
  return static_cast<std::int32_t>(octave.first + offset);
}

std::int32_t SyntheticTokens::successor(std::int32_t token, std::uint32_t branch) const {
  return draw(philox4x32({static_cast<std::uint32_t>(token), 0, 0, 0}, key_of(seed_, "data.synthetic.chain"))[branch]);
}

void SyntheticTokens::tokens(std::int64_t sample, std::span<std::int32_t> input, std::span<std::int32_t> target) const {
  STRATA_INVARIANT(sample >= 0 && sample < num_samples_, fmt::format("sample {} of {}", sample, num_samples_));
  STRATA_INVARIANT(
      (input.empty() || std::ssize(input) == sequence_length_) &&
          (target.empty() || std::ssize(target) == sequence_length_),
      fmt::format("spans of {} and {} for sequence length {}", input.size(), target.size(), sequence_length_));
  const std::array<std::uint32_t, 2> key = key_of(seed_, "data.synthetic.tokens");
  const auto number = static_cast<std::uint64_t>(sample);
  std::int32_t token = 0;
  for (std::int64_t i = 0; i <= sequence_length_; ++i) {
    const auto position = static_cast<std::uint64_t>(i);
    const std::array<std::uint32_t, 4> words =
        philox4x32({static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32U),
                    static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32U)},
                   key);
    if (i == 0 || words[0] >> 28U == 0) {
      token = draw(words[1]);
    } else {
      // The number of leading ones of a random word is geometric: 0, 1, 2, 3 or more with 1/2, 1/4, 1/8, 1/8.
      token = successor(token, static_cast<std::uint32_t>(std::min(std::countl_one(words[2]), 3)));
    }
    if (i < sequence_length_ && !input.empty()) {
      input[static_cast<std::size_t>(i)] = token;
    }
    if (i > 0 && !target.empty()) {
      target[static_cast<std::size_t>(i - 1)] = token;
    }
  }
}

double SyntheticTokens::entropy_bound_nats() const {
  double draw_nats = std::log(num_octaves_);
  for (std::uint32_t octave = 0; octave < num_octaves_; ++octave) {
    draw_nats += std::log(octave_of(octave, vocabulary_).width) / num_octaves_;
  }
  constexpr double restart = 1.0 / 16.0;
  const double branch_nats = 1.75 * std::log(2.0);
  const double which_nats = -restart * std::log(restart) - (1.0 - restart) * std::log(1.0 - restart);
  // An upper bound: two branches may lead to the same token. In tiny vocabularies log V is the smaller one.
  return std::min(which_nats + (1.0 - restart) * branch_nats + restart * draw_nats,
                  std::log(static_cast<double>(vocabulary_)));
}

Provenance SyntheticTokens::describe() const {
  return {
      .format = Format::synthetic,

      .num_samples = num_samples_,
      .detail = fmt::format("Markov chain of seed {}, sequence length {}, vocabulary {}, at most {:.3f} nats a token",
                            seed_, sequence_length_, vocabulary_, entropy_bound_nats())};
}

}  // namespace strata::data
