#include "planners/operators/problem.hpp"

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

}  // namespace

BatchAnswer evaluated(const ChoiceProblem& problem, Counts counts, std::int64_t samples) {
  BatchAnswer answer{.samples = samples, .counts = std::move(counts)};
  for (std::size_t c = 0; c < problem.classes.size(); ++c) {
    for (std::size_t k = 0; k < answer.counts[c].size(); ++k) {
      const int taken = answer.counts[c][k];
      if (taken == 0) continue;
      const Choice& choice = problem.classes[c].choices[k];
      answer.seconds += taken * choice.seconds;
      answer.resident_bytes += taken * choice.resident_bytes;
      answer.workspace_bytes = std::max(answer.workspace_bytes, choice.workspace_bytes);
    }
  }
  answer.seconds += problem.compute_seconds(samples);
  answer.peak_bytes = problem.peak_bytes(answer.resident_bytes, answer.workspace_bytes, samples);
  return answer;
}

Counts least_resident(const ChoiceProblem& problem) {
  return all_take_the_least(problem,
                            [](const Choice& c) { return std::tuple(c.resident_bytes, c.workspace_bytes, c.seconds); });
}

Counts fastest(const ChoiceProblem& problem) {
  return all_take_the_least(problem,
                            [](const Choice& c) { return std::tuple(c.seconds, c.resident_bytes, c.workspace_bytes); });
}

std::int64_t least_peak_bytes(const ChoiceProblem& problem, std::int64_t samples) {
  std::set<std::int64_t> thresholds;
  for (const OperatorClass& c : problem.classes) {
    for (const Choice& choice : c.choices) thresholds.insert(choice.workspace_bytes);
  }
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t threshold : thresholds) {
    std::int64_t resident = 0;
    bool possible = true;
    for (const OperatorClass& c : problem.classes) {
      std::int64_t of_one = std::numeric_limits<std::int64_t>::max();
      for (const Choice& choice : c.choices) {
        if (choice.workspace_bytes <= threshold) of_one = std::min(of_one, choice.resident_bytes);
      }
      possible = possible && of_one != std::numeric_limits<std::int64_t>::max();
      if (possible) resident += c.count * of_one;
    }
    if (possible) least = std::min(least, problem.peak_bytes(resident, threshold, samples));
  }
  return problem.classes.empty() ? problem.peak_bytes(0, 0, samples) : least;
}

}  // namespace strata
