#include "planners/operators/fitting.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <utility>

#include "planners/operators/depth_first.hpp"

namespace strata {

Fitting::Fitting(const OperatorChoices& operators, const FittingOptions& options)
    : operators_(operators), options_(options), exact_(operators.problem()) {}

std::optional<BatchAnswer> Fitting::solve(std::int64_t samples, std::int64_t capacity) {
  if (options_.exact) return exact_.best(samples, capacity);
  ChoiceProblem limited = problem();
  limited.capacity_bytes = capacity;
  const std::array one = {samples};
  DepthFirstAnswer answer = search_depth_first(limited, one, options_.dfs_nodes);
  if (answer.answers.empty()) return std::nullopt;
  return std::move(answer.answers.front());
}

Found Fitting::looked_at(BatchAnswer answer) const {
  Found found{.answer = std::move(answer)};
  found.choices = operators_.dealt(found.answer.counts);
  found.closed_form_bytes = operators_.peak_bytes(found.choices, found.answer.samples);
  found.peak_bytes = found.closed_form_bytes;
  return found;
}

/// Every operator by its choice number @p choice: the plans of ddp and of zero3.
Found Fitting::pure(std::size_t choice, std::int64_t samples) const {
  Counts counts;
  for (const OperatorClass& c : problem().classes) {
    counts.emplace_back(c.choices.size(), 0)[std::min(choice, c.choices.size() - 1)] = c.count;
  }
  return looked_at(evaluated(problem(), std::move(counts), samples));
}

std::vector<Found> Fitting::smallest(std::int64_t samples) const {
  constexpr auto last_choice = std::numeric_limits<std::size_t>::max();
  std::vector<Found> all = {sharded(samples), pure(last_choice, samples),
                            looked_at(evaluated(problem(), least_resident(problem()), samples)),
                            looked_at(evaluated(problem(), least_peak(problem(), samples), samples))};
  std::vector<Found> different;
  for (Found& found : all) {
    if (std::ranges::find(different, found.choices, &Found::choices) == different.end()) {
      different.push_back(std::move(found));
    }
  }
  return different;
}

Found Fitting::least(std::int64_t samples) const {
  return bounded(std::ranges::min(smallest(samples), {}, &Found::peak_bytes));
}

Found Fitting::bounded(Found found) const {
  const double bound = lower_bound_seconds(problem(), found.answer.samples);
  found.answer.gap = std::max(0.0, 1.0 - bound / found.answer.seconds);
  return found;
}

std::optional<Found> Fitting::fit(std::int64_t samples, std::int64_t capacity_bytes) {
  const auto found_within = [&](std::int64_t of_sums) -> std::optional<Found> {
    auto answer = solve(samples, of_sums);
    return answer ? std::optional(looked_at(std::move(*answer))) : std::nullopt;
  };
  std::optional<Found> best = found_within(capacity_bytes);
  if (!best) return std::nullopt;
  const double bound = best->answer.seconds * (1.0 - best->answer.gap);
  if (best->peak_bytes > capacity_bytes) {
    best = options_.exact ? bisected(found_within, samples, capacity_bytes, best->answer.peak_bytes)
                          : tightened(found_within, capacity_bytes, std::move(best));
  }
  // Of equals the plan without sharding: it hides more of its communication than the other.
  constexpr double rounding = 1.0 + 1e-12;
  for (const auto choice : {least_sharded_choice, most_sharded_choice()}) {
    Found candidate = pure(choice, samples);
    if (candidate.peak_bytes > capacity_bytes) continue;
    const bool is_first = choice == least_sharded_choice;
    const double limit = best ? best->answer.seconds * (is_first ? rounding : 1.0) : 0.0;
    if (!best || candidate.answer.seconds < limit) best = std::move(candidate);
  }
  if (!best) {
    Found last = least(samples);
    if (last.peak_bytes <= capacity_bytes) best = std::move(last);
  }
  if (best) best->answer.gap = std::max(0.0, 1.0 - bound / best->answer.seconds);
  return best;
}

/// Depth first is too slow to ask often: what is too much is taken away until nothing is.
template <typename FoundWithin>
std::optional<Found> Fitting::tightened(const FoundWithin& found_within, std::int64_t capacity,
                                        std::optional<Found> found) {
  while (found && found->peak_bytes > capacity) {
    found = found_within(found->answer.peak_bytes - (found->peak_bytes - capacity));
  }
  return found;
}

template <typename FoundWithin>
std::optional<Found> Fitting::bisected(const FoundWithin& found_within, std::int64_t samples, std::int64_t capacity,
                                       std::int64_t too_much) const {
  std::int64_t low = least_peak_bytes(problem(), samples), high = too_much;
  std::optional<Found> best = found_within(low);
  if (!best || best->peak_bytes > capacity) return std::nullopt;
  while (high - low > 1) {
    const std::int64_t middle = std::midpoint(low, high);
    std::optional<Found> found = found_within(middle);
    if (found && found->peak_bytes <= capacity) {
      low = middle;
      best = std::move(found);
    } else {
      // Everything down to what that plan sums to is that plan.
      high = found ? std::clamp(found->answer.peak_bytes, low + 1, middle) : middle;
    }
  }
  return best;
}

}  // namespace strata
