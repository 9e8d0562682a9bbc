#pragma once

/// @file
/// The search for the best batch and choices where the Program's account, not the closed form, says what fits. The
/// closed form orders and finds; where a Program needs more or less than it says, its capacity is moved by the
/// difference, in either direction.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "planners/operators/choices.hpp"
#include "planners/operators/fitting.hpp"

namespace strata {

/// The arena of the fullest rank, bytes; 0: lowering refuses. @param choices by unit.
using PeakOfChoices = std::function<std::int64_t(const std::vector<int>& choices, std::int64_t samples)>;

class ProgramSearch {
 public:
  /// @param operators outlives this. @param program_peak null: nobody lowers here, and the closed form decides.
  ProgramSearch(const OperatorChoices& operators, const FittingOptions& options, std::int64_t capacity_bytes,
                PeakOfChoices program_peak);

  const OperatorChoices& operators() const { return operators_; }

  /// Plans that fit, for the samples that a rank is given, or, with 0, for those that are best: the one with the fewest
  /// seconds a sample; and, where there are Programs and it leaves room for larger batches, the one with the fewest
  /// seconds for the largest. Empty: nothing fits. Fills frontier().
  std::vector<Found> plans(std::int64_t asked_samples);
  /// By batch size what was found by plans(); bytes as those of the answer are known.
  const std::vector<Found>& frontier() const { return frontier_; }

  /// Every operator replicated, as by ddp, or sharded whole, as by zero3: with @p asked_samples, or with 0 the most
  /// that fit. Nothing: they do not fit.
  std::optional<Found> replicated(std::int64_t asked_samples) const;
  std::optional<Found> sharded(std::int64_t asked_samples) const;

  /// What needs least of the plans that may: with the fewest resident bytes, with the least peak by closed form,
  /// everything sharded whole, everything sharded in slices.
  Found least(std::int64_t samples) const;
  /// Samples of a rank for which something fits; 0: for none.
  std::int64_t most_samples() const;

 private:
  struct Answer {
    std::optional<Found> best;
    std::vector<Found> frontier;
  };
  const ChoiceProblem& problem() const { return operators_.problem(); }
  std::int64_t most_by_closed_form() const;
  Answer best_within(std::span<const std::int64_t> samples, std::int64_t capacity);
  Answer search(std::span<const std::int64_t> samples, std::int64_t correction, int most_programs);
  Found measured(Found found) const;
  std::optional<Found> largest(const std::function<Found(std::int64_t samples)>& plan, std::int64_t asked) const;

  const OperatorChoices& operators_;
  Fitting fitting_;
  std::int64_t capacity_;
  PeakOfChoices program_peak_;
  std::vector<Found> frontier_;
};

}  // namespace strata
