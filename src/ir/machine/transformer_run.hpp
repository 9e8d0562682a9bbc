#pragma once

/// @file
/// One training run of a GPT-like transformer, as published tables of measurements describe it: the model's sizes and
/// how the run is split. Only numbers; no Plan can say yet what tensor and sequence parallelism do inside a layer.

#include <cstdint>
#include <string_view>

namespace strata {

/// What the backward pass computes again: nothing, the attention core (scores, softmax, its dropout, their product with
/// the values; Korthikanti et al., arXiv 2205.05198, sec. 5), or the whole layer from its input.
enum class Recomputation : std::uint8_t { none, selective, full };
std::string_view to_string(Recomputation recomputation);

/// No count of a run is larger, so that products of three do not overflow.
inline constexpr std::int64_t largest_run_count = 2'000'000;

struct TransformerRun {
  std::int64_t hidden_size = 0;      ///< h
  std::int64_t attention_heads = 0;  ///< a
  std::int64_t layers = 0;           ///< L
  std::int64_t sequence_length = 0;  ///< s
  std::int64_t vocabulary_size = 0;  ///< V
  std::int64_t global_batch = 0;     ///< sequences a step, over all replicas
  std::int64_t micro_batch = 0;      ///< b: sequences of one micro-batch
  std::int64_t tensor = 1;           ///< t: ranks that share each layer
  std::int64_t data = 1;             ///< d: replicas
  std::int64_t pipeline = 1;         ///< p: stages
  std::int64_t virtual_stages = 1;   ///< v: pieces of a stage that are interleaved (Narayanan et al. 2021, sec. 2.2)
  Recomputation recomputation = Recomputation::none;
  bool sequence_parallel = false;  ///< what tensor parallelism leaves whole is split along the sequence
  bool operator==(const TransformerRun&) const = default;

  std::int64_t num_ranks() const { return tensor * data * pipeline; }
  /// m: micro-batches of one replica in a step.
  std::int64_t micro_batches() const { return global_batch / (micro_batch * data); }
};

/// @throws UserError naming the field and its numbers where they contradict each other.
void verify(const TransformerRun& run);

}  // namespace strata
