#include "planners/operators/program_search.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

namespace strata {
namespace {

/// The largest count for which @p fits, from @p guess on: what fits some fits fewer. 0: not even one does.
template <typename Fits>
std::int64_t largest_that(const Fits& fits, std::int64_t guess) {
  std::int64_t low = guess, high = guess + 1, step = 1;
  while (low > 0 && !fits(low)) {
    high = low;
    low = std::max<std::int64_t>(0, low - step);
    step *= 2;
  }
  if (low == guess) {
    while (fits(high)) {
      low = high;
      high += step;
      step *= 2;
    }
  }
  while (high - low > 1) {
    const std::int64_t middle = std::midpoint(low, high);
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

void set_measured(Found& found, std::int64_t peak_bytes) {
  found.peak_bytes = peak_bytes;
  found.bytes_by = "the Program";
}

}  // namespace

ProgramSearch::ProgramSearch(const OperatorChoices& operators, const FittingOptions& options,
                             std::int64_t capacity_bytes, PeakOfChoices program_peak)
    : operators_(operators),
      fitting_(operators, options),
      capacity_(capacity_bytes),
      program_peak_(std::move(program_peak)) {}

std::vector<Found> ProgramSearch::plans(std::int64_t asked_samples) {
  constexpr int most_programs = 12, most_programs_of_last = 6;
  const std::int64_t most = asked_samples > 0 ? asked_samples : most_samples();
  std::vector<std::int64_t> samples = {asked_samples};
  if (asked_samples == 0) {
    samples.resize(static_cast<std::size_t>(std::max(most, most_by_closed_form())));
    std::iota(samples.begin(), samples.end(), std::int64_t{1});
  }
  Answer answer = search(samples, 0, most_programs);
  frontier_ = std::move(answer.frontier);
  std::vector<Found> plans;
  if (answer.best) plans.push_back(std::move(*answer.best));
  if (!program_peak_ || most == 0 || (!plans.empty() && plans.front().answer.samples >= most)) return plans;
  // The closed form may be above the Program at the largest batch, and never have looked at it.
  Found last = least(most);
  if (last.peak_bytes > capacity_) return plans;
  Answer at_most = search(std::array{most}, last.peak_bytes - last.closed_form_bytes, most_programs_of_last);
  plans.push_back(at_most.best ? std::move(*at_most.best) : std::move(last));
  std::erase_if(frontier_, [&](const Found& f) { return f.answer.samples == most; });
  const auto behind = std::ranges::find_if(frontier_, [&](const Found& f) { return f.answer.samples > most; });
  frontier_.insert(behind, plans.back());
  return plans;
}

/// The best over all batch sizes within @p capacity by closed form.
ProgramSearch::Answer ProgramSearch::best_within(std::span<const std::int64_t> samples, std::int64_t capacity) {
  Answer answer;
  for (const std::int64_t b : samples) {
    std::optional<Found> found = fitting_.fit(b, capacity);
    if (!found) continue;
    answer.frontier.push_back(*found);
    const double seconds = found->answer.seconds_per_sample();
    if (!answer.best || seconds <= answer.best->answer.seconds_per_sample()) answer.best = std::move(found);
  }
  return answer;
}

/// Where the winner's Program needs more or less than the closed form says, the capacity is moved by the difference,
/// the correction, and the search repeated. Between what fitted and what did not it is halved a few times: a plan with
/// the bytes of the one and the difference of the other may exceed.
ProgramSearch::Answer ProgramSearch::search(std::span<const std::int64_t> samples, std::int64_t correction,
                                            int most_programs) {
  const std::int64_t close_enough = capacity_ / 4096;
  Answer best;
  std::optional<std::int64_t> fitting, failing;  // corrections
  for (int i = 0; i < most_programs; ++i) {
    Answer found = best_within(samples, capacity_ - correction);
    if (!found.best) {
      // Too much was taken away: less than this, and more than what exceeded, may leave a plan that fits.
      if (fitting || !failing || correction - *failing <= close_enough) break;
      correction = std::midpoint(*failing, correction);
      continue;
    }
    const std::int64_t peak = program_peak_ ? program_peak_(found.best->choices, found.best->answer.samples) : 0;
    if (peak == 0) {
      if (best.best) break;
      return found;
    }
    set_measured(*found.best, peak);
    if (peak <= capacity_) {
      fitting = correction;
      const std::int64_t difference = peak - found.best->closed_form_bytes;
      for (Found& each : found.frontier) {
        if (each.answer.samples == found.best->answer.samples) {
          set_measured(each, peak);
        } else if (correction != 0) {
          each.peak_bytes += correction;
          each.bytes_by = "corrected closed form";
        }
      }
      const bool is_better =
          !best.best || found.best->answer.seconds_per_sample() < best.best->answer.seconds_per_sample();
      if (is_better) best = std::move(found);
      if (!failing && difference < correction - close_enough) {
        correction = difference;
        continue;
      }
    } else {
      failing = correction;
      if (!fitting) {
        correction = peak - found.best->closed_form_bytes;
        continue;
      }
    }
    if (!failing || *fitting - *failing <= close_enough) break;
    correction = std::midpoint(*fitting, *failing);
  }
  return best;
}

Found ProgramSearch::measured(Found found) const {
  if (!program_peak_) return found;
  const std::int64_t peak = program_peak_(found.choices, found.answer.samples);
  if (peak > 0) set_measured(found, peak);
  return found;
}

std::optional<Found> ProgramSearch::largest(const std::function<Found(std::int64_t samples)>& plan,
                                            std::int64_t asked) const {
  const auto fits = [&](std::int64_t b) { return measured(plan(b)).peak_bytes <= capacity_; };
  std::int64_t samples = asked;
  if (asked == 0) {
    const auto fits_closed_form = [&](std::int64_t b) { return plan(b).peak_bytes <= capacity_; };
    samples = largest_that(fits, largest_that(fits_closed_form, 0));
  }
  if (samples == 0 || !fits(samples)) return std::nullopt;
  return fitting_.bounded(measured(plan(samples)));
}

std::optional<Found> ProgramSearch::replicated(std::int64_t asked_samples) const {
  return largest([&](std::int64_t b) { return fitting_.replicated(b); }, asked_samples);
}

std::optional<Found> ProgramSearch::sharded(std::int64_t asked_samples) const {
  return largest([&](std::int64_t b) { return fitting_.sharded(b); }, asked_samples);
}

Found ProgramSearch::least(std::int64_t samples) const {
  std::optional<Found> least;
  for (Found& small : fitting_.smallest(samples)) {
    Found found = measured(std::move(small));
    if (!least || found.peak_bytes < least->peak_bytes) least = std::move(found);
  }
  return fitting_.bounded(std::move(*least));
}

std::int64_t ProgramSearch::most_by_closed_form() const {
  return largest_that([&](std::int64_t b) { return least_peak_bytes(problem(), b) <= capacity_; }, 0);
}

std::int64_t ProgramSearch::most_samples() const {
  const std::int64_t most = most_by_closed_form();
  if (!program_peak_) return most;
  return largest_that([&](std::int64_t b) { return least(b).peak_bytes <= capacity_; }, most);
}

}  // namespace strata
