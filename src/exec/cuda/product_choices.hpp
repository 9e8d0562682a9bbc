#pragma once

/// @file
/// Which of the kernels that cuBLASLt's heuristic names computes a product. The decision: products of one shape have
/// one kernel, timed once where that is asked for, and the same on all ranks, so that ranks which compute the same
/// thing get the same bits.

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace strata::cuda {

struct ProductChoice {
  static constexpr std::int64_t refused = std::numeric_limits<std::int64_t>::max();
  /// That fit: by the heuristic's account the fastest first.
  std::vector<cublasLtMatmulHeuristicResult_t> kernels;
  /// What each takes on this rank, or that cuBLASLt refused it after all; empty: not timed.
  std::vector<std::int64_t> nanoseconds;
  std::size_t chosen = 0;  ///< of kernels

  /// Among the timed ones. @return whether any serves.
  bool choose_fastest();
};

/// Of the products bound so far, by shape: what the heuristic goes by, as text.
class ProductChoices {
 public:
  /// Stays where it is. @return that of @p shape, without kernels where it is new.
  ProductChoice& of(const std::string& shape) { return choices_[shape]; }
  /// A line for each one that was timed here: the number of the kernel, and the shape.
  std::string to_text() const;
  /// All ranks that have a shape take what the lowest of them chose, unless it is refused here.
  /// @param texts to_text() of every rank, by rank.
  void agree(std::span<const std::string> texts);

 private:
  std::map<std::string, ProductChoice> choices_;
};

}  // namespace strata::cuda
