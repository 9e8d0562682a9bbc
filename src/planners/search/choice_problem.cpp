#include "planners/search/choice_problem.hpp"

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

namespace strata {
namespace {

/// All operators of a class take its choice of the least @p key.
template <typename Key>
Counts all_take_the_least(const ChoiceProblem& problem, const Key& key) {
  Counts counts;
  for (const OperatorClass& c : problem.classes) {
    const auto best = std::ranges::min_element(c.choices, {}, key);
    counts.emplace_back(c.choices.size(), 0)[static_cast<std::size_t>(best - c.choices.begin())] = c.count;
  }
  return counts;
}

/// Of all operators; of workspaces the largest.
Choice summed(const ChoiceProblem& problem, const Counts& counts) {
  Choice sums;
  for (std::size_t c = 0; c < problem.classes.size(); ++c) {
    for (std::size_t k = 0; k < counts[c].size(); ++k) {
      const int taken = counts[c][k];
      if (taken == 0) continue;
      const Choice& choice = problem.classes[c].choices[k];
      sums.seconds += taken * choice.seconds;
      sums.resident_bytes += taken * choice.resident_bytes;
      sums.workspace_bytes = std::max(sums.workspace_bytes, choice.workspace_bytes);
    }
  }
  return sums;
}

std::int64_t peak_of(const ChoiceProblem& problem, const Counts& counts, std::int64_t samples) {
  const Choice sums = summed(problem, counts);
  return problem.peak_bytes(sums.resident_bytes, sums.workspace_bytes, samples);
}

}  // namespace

BatchAnswer evaluated(const ChoiceProblem& problem, Counts counts, std::int64_t samples) {
  const Choice sums = summed(problem, counts);
  return {.samples = samples,
          .counts = std::move(counts),
          .seconds = sums.seconds + problem.compute_seconds(samples),
          .resident_bytes = sums.resident_bytes,
          .workspace_bytes = sums.workspace_bytes,
          .peak_bytes = problem.peak_bytes(sums.resident_bytes, sums.workspace_bytes, samples)};
}

Counts least_resident(const ChoiceProblem& problem) {
  return all_take_the_least(problem,
                            [](const Choice& c) { return std::tuple(c.resident_bytes, c.workspace_bytes, c.seconds); });
}

Counts fastest(const ChoiceProblem& problem) {
  return all_take_the_least(problem,
                            [](const Choice& c) { return std::tuple(c.seconds, c.resident_bytes, c.workspace_bytes); });
}

Counts least_peak(const ChoiceProblem& problem, std::int64_t samples) {
  std::set<std::int64_t> thresholds;
  for (const OperatorClass& c : problem.classes) {
    for (const Choice& choice : c.choices) thresholds.insert(choice.workspace_bytes);
  }
  Counts least;
  std::int64_t least_bytes = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t threshold : thresholds) {
    // What is over the threshold comes last.
    Counts counts = all_take_the_least(problem, [&](const Choice& c) {
      return std::tuple(c.workspace_bytes > threshold, c.resident_bytes, c.workspace_bytes, c.seconds);
    });
    const std::int64_t bytes = peak_of(problem, counts, samples);
    if (bytes >= least_bytes) continue;
    least_bytes = bytes;
    least = std::move(counts);
  }
  return least;
}

std::int64_t least_peak_bytes(const ChoiceProblem& problem, std::int64_t samples) {
  return peak_of(problem, least_peak(problem, samples), samples);
}

}  // namespace strata
