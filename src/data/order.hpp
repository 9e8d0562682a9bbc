#pragma once

/// @file
/// Which sample is trained on when. Samples are numbered along one endless sequence of epochs, step · global_batch +
/// position, which knows nothing of ranks: a rank asks for the global positions that it owns, so every layout trains on
/// the same samples in the same steps. A batch may reach from one epoch into the next; no sample is dropped.

#include <cstdint>

namespace strata::data {

/// The image of `index` under a pseudo-random permutation of [0, size), chosen by (seed, epoch). Nothing is stored: an
/// eight-round Feistel network whose round function is Philox permutes the next power of two, and values that fall
/// outside [0, size) are sent through again (cycle walking, Black & Rogaway, "Ciphers with arbitrary finite domains",
/// CT-RSA 2002), twice at most on average. Not every permutation of a tiny set can arise. size ≥ 1, index in [0, size).
std::int64_t permuted(std::int64_t index, std::int64_t size, std::uint64_t seed, std::uint64_t epoch);

/// Plain data; equal on all ranks.
struct Order {
  std::int64_t num_samples = 0;   ///< of one epoch, at least 1
  std::int64_t global_batch = 0;  ///< samples a step, at least 1
  std::uint64_t seed = 1;
  bool shuffle = true;  ///< false: every epoch in the dataset's own order

  /// Where `position` in [0, global_batch) of step `step` ≥ 0 (the first step is 0) is along the endless sequence.
  std::int64_t place(std::int64_t step, std::int64_t position) const;
  /// The sample there.
  std::int64_t sample(std::int64_t step, std::int64_t position) const;
  /// The epoch, counted from 0, of the sample at position 0 of `step`.
  std::int64_t epoch(std::int64_t step) const;
};

}  // namespace strata::data
