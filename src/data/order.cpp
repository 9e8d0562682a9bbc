/// @file
/// The permutation by a Feistel network over Philox; see order.hpp for why.

#include "data/order.hpp"

#include <fmt/core.h>

#include <array>
#include <bit>

#include "base/error.hpp"
#include "base/random.hpp"

namespace strata::data {

std::int64_t permuted(std::int64_t index, std::int64_t size, std::uint64_t seed, std::uint64_t epoch) {
  STRATA_INVARIANT(index >= 0 && index < size, fmt::format("index {} of {}", index, size));
  const auto count = static_cast<std::uint64_t>(size);
  const auto num_bits =
      static_cast<int>(std::bit_width(count - 1));  // [0, size) lies in [0, 2^num_bits); 0 for a single sample
  const int low_bits = (num_bits + 1) / 2;
  const std::uint64_t low_mask = (std::uint64_t{1} << low_bits) - 1;
  const std::uint64_t high_mask = (std::uint64_t{1} << (num_bits - low_bits)) - 1;
  const std::uint64_t key = seed ^ stream_of("data.order");
  const auto random = [&](std::uint64_t half, std::uint32_t round) {
    return std::uint64_t{philox4x32({static_cast<std::uint32_t>(half), round, static_cast<std::uint32_t>(epoch),
                                     static_cast<std::uint32_t>(epoch >> 32U)},
                                    {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32U)})[0]};
  };

  auto value = static_cast<std::uint64_t>(index);
  do {
    // Each half has at most 32 bits. A round changes one half by a function of the other, so it can be undone whatever
    // the function and whether or not the halves are equally wide.
    std::uint64_t low = value & low_mask;
    std::uint64_t high = value >> low_bits;
    for (std::uint32_t round = 0; round < 8; round += 2) {
      low ^= random(high, round) & low_mask;
      high ^= random(low, round + 1) & high_mask;
    }
    value = high << low_bits | low;
  } while (value >= count);
  return static_cast<std::int64_t>(value);
}

std::int64_t Order::place(std::int64_t step, std::int64_t position) const {
  STRATA_INVARIANT(num_samples >= 1 && step >= 0 && position >= 0 && position < global_batch,
                   fmt::format("position {} of {} in step {}, {} samples", position, global_batch, step, num_samples));
  return step * global_batch + position;
}

std::int64_t Order::sample(std::int64_t step, std::int64_t position) const {
  const std::int64_t index = place(step, position);
  const std::int64_t in_epoch = index % num_samples;
  return shuffle ? permuted(in_epoch, num_samples, seed, static_cast<std::uint64_t>(index / num_samples)) : in_epoch;
}

std::int64_t Order::epoch(std::int64_t step) const { return step * global_batch / num_samples; }

}  // namespace strata::data
