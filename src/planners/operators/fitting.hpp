#pragma once

/// @file
/// The best way to hold the states of some operators within a memory: the search for one batch size, whose answer is
/// then looked at moment by moment, because the search itself sees sums alone.

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "planners/operators/choices.hpp"
#include "planners/search/exact_choices.hpp"

namespace strata {

/// A plan whose bytes were looked at moment by moment.
struct Found {
  BatchAnswer answer;
  std::vector<int> choices{};  ///< by unit
  std::int64_t closed_form_bytes = 0;
  std::int64_t peak_bytes = 0;  ///< by closed form, then by the Program's account where there is one
  std::string_view bytes_by = "closed form";
};

struct FittingOptions {
  bool exact = true;           ///< false: the paper's depth-first search
  std::int64_t dfs_nodes = 0;  ///< of that
  bool offers_sdp = false;
};

class Fitting {
 public:
  /// @param operators outlives this.
  Fitting(const OperatorChoices& operators, const FittingOptions& options);

  /// The fewest seconds for @p samples whose moments all fit; nothing: no plan fits. The search sees sums alone, which
  /// is never more than the moments need: where they need more it is given less, by bisection, and the gap says what
  /// that may have cost.
  std::optional<Found> fit(std::int64_t samples, std::int64_t capacity_bytes);

  /// Every operator replicated, as by ddp.
  Found replicated(std::int64_t samples) const { return pure(least_sharded_choice, samples); }
  /// Every operator sharded whole, as by zero3.
  Found sharded(std::int64_t samples) const { return pure(most_sharded_choice(), samples); }
  /// Plans of which one needs least, all different: the least resident bytes, the least peak of sums, everything
  /// sharded whole, everything in slices where there are any.
  std::vector<Found> smallest(std::int64_t samples) const;
  /// Of smallest() the one that needs least by closed form.
  Found least(std::int64_t samples) const;
  /// @p found with its gap to the lower bound.
  Found bounded(Found found) const;

 private:
  static constexpr std::size_t least_sharded_choice = 0;
  std::size_t most_sharded_choice() const { return options_.offers_sdp ? 2 : 1; }
  const ChoiceProblem& problem() const { return operators_.problem(); }
  std::optional<BatchAnswer> solve(std::int64_t samples, std::int64_t capacity);
  Found looked_at(BatchAnswer answer) const;
  Found pure(std::size_t choice, std::int64_t samples) const;
  template <typename FoundWithin>
  static std::optional<Found> tightened(const FoundWithin& found_within, std::int64_t capacity,
                                        std::optional<Found> found);
  template <typename FoundWithin>
  std::optional<Found> bisected(const FoundWithin& found_within, std::int64_t samples, std::int64_t capacity,
                                std::int64_t too_much) const;

  const OperatorChoices& operators_;
  FittingOptions options_;
  ExactSearch exact_;
};

}  // namespace strata
