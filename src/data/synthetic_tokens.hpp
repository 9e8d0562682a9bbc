#pragma once

/// @file
/// Generated token sequences that can be learnt: a sparse Markov chain. Each token has four likely successors, fixed
/// by the seed, and now and then the chain restarts anywhere. Token ids are drawn with frequencies falling as 1/id,
/// as words do, so that a loss falls at once (frequencies) and then keeps falling (successors), for any vocabulary.
///
///   next = successor_j(token), j = 0…3 with probabilities 1/2, 1/4, 1/8, 1/8   with probability 15/16
///        = draw()                                                              with probability 1/16
///   draw(): an octave o of ceil(log2(vocabulary + 1)) equally likely ones, then one of its ids
///           [2^o − 1, 2^(o+1) − 1) ∩ [0, vocabulary), equally likely; each successor was drawn so, too.
///
/// All arithmetic is in integers on Philox words, so equal seeds give equal tokens on every machine.

#include <cstdint>
#include <span>

#include "data/dataset.hpp"

namespace strata::data {

class SyntheticTokens final : public TokenDataset {
 public:
  SyntheticTokens(std::int64_t num_samples, std::int64_t sequence_length, std::int64_t vocabulary, std::uint64_t seed);

  std::int64_t num_samples() const override { return num_samples_; }
  std::int64_t sequence_length() const override { return sequence_length_; }
  std::int64_t vocabulary() const override { return vocabulary_; }
  void tokens(std::int64_t sample, std::span<std::int32_t> input, std::span<std::int32_t> target) const override;
  Provenance describe() const override;

  /// An upper bound of the chain's entropy, nats a token: the loss of a model that knows the chain is at most this.
  /// It is the entropy of which case occurred, plus that of a branch or of a draw.
  double entropy_bound_nats() const;

 private:
  std::int32_t draw(std::uint32_t word) const;
  std::int32_t successor(std::int32_t token, std::uint32_t branch) const;

  std::int64_t num_samples_;
  std::int64_t sequence_length_;
  std::int64_t vocabulary_;
  std::uint64_t seed_;
  std::uint32_t num_octaves_;
};

}  // namespace strata::data
