#pragma once

/// @file
/// OSDP's decision as plain numbers: n operators, each takes one of several ways to hold its states, for every batch
/// size that is asked about
///     minimise  T(p, b) = Σ_i seconds(p_i) + compute_seconds(b)
///     s.t.      peak_bytes(Σ_i resident(p_i), max_i workspace(p_i), b) ≤ capacity
/// Operators of one shape are interchangeable: a class and how many of them take each choice is all that matters.
/// No graph, no plan, no cluster: instances are made by hand or at random.
///
/// Source: OSDP (IJCAI 2023), sec. 3.1 and 3.2. Where its M^extra is a sum over operators, it is a part of `resident`.

#include <cstdint>
#include <functional>
#include <vector>

namespace strata {

struct Choice {
  double seconds = 0.0;              ///< of a step's communication
  std::int64_t resident_bytes = 0;   ///< states
  std::int64_t workspace_bytes = 0;  ///< while the operator runs: what is gathered and not yet scattered
};

struct OperatorClass {
  std::vector<Choice> choices;
  int count = 1;  ///< operators of this shape
};

struct ChoiceProblem {
  std::vector<OperatorClass> classes;
  std::int64_t capacity_bytes = 0;
  /// Of the fullest moment; falls with none of resident, workspace and samples.
  std::function<std::int64_t(std::int64_t resident, std::int64_t workspace, std::int64_t samples)> peak_bytes;
  /// What no choice changes.
  std::function<double(std::int64_t samples)> compute_seconds;
};

/// By class, by choice: how many of its operators take it.
using Counts = std::vector<std::vector<int>>;

/// What the best plan for one batch size costs.
struct BatchAnswer {
  std::int64_t samples = 0;  ///< of a rank and micro-batch
  Counts counts;
  double seconds = 0.0;
  std::int64_t resident_bytes = 0;
  std::int64_t workspace_bytes = 0;
  std::int64_t peak_bytes = 0;
  /// No plan for these samples takes less than seconds · (1 - gap); 0: this is the optimum.
  double gap = 0.0;
  double seconds_per_sample() const { return seconds / static_cast<double>(samples); }
};

/// What @p counts sum to.
BatchAnswer evaluated(const ChoiceProblem& problem, Counts counts, std::int64_t samples);

/// For each class the choice with the least resident bytes, of these the least workspace, of these the fewest seconds.
Counts least_resident(const ChoiceProblem& problem);

/// For each class the fastest choice, of these the one with the least resident bytes, then workspace.
Counts fastest(const ChoiceProblem& problem);

/// The counts whose peak is least for @p samples.
Counts least_peak(const ChoiceProblem& problem, std::int64_t samples);

/// The least peak that any counts have for @p samples: where it is over the capacity nothing fits.
std::int64_t least_peak_bytes(const ChoiceProblem& problem, std::int64_t samples);

}  // namespace strata
