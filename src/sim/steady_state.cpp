#include "sim/steady_state.hpp"

#include <algorithm>
#include <cmath>

#include "ir/program/repetition.hpp"

namespace strata {
namespace {

/// Steps of which a simulation knows whole nanoseconds repeat within two of them.
constexpr double rounding_seconds = 2e-9;
/// How often more steps are tried, each time twice as many.
constexpr int num_doublings = 4;

/// Steps around the steady ones that most jobs need: as many repetitions as reach into each other, and as many again,
/// for ranks that fill in turn. None where steps do not overlap.
int steps_around(const Job& job) {
  int repetitions = 0;
  for (const Program* program : job.programs) {
    if (is_repeated_alone(*program)) continue;
    repetitions = std::max(repetitions, 2 * largest_lag(*program) + 2 * depth(*program));
  }
  return repetitions * job.programs.front()->steps_per_body;
}

bool are_like(double a, double b) { return std::abs(a - b) <= rounding_seconds + 1e-9 * b; }

/// Step @p s takes as long as @p earlier did, on every class.
bool is_like(const SimulationResult& result, int s, int earlier) {
  const auto& now = result.steps[static_cast<std::size_t>(s)];
  const auto& then = result.steps[static_cast<std::size_t>(earlier)];
  return std::ranges::equal(now, then, [](const SimulatedStep& a, const SimulatedStep& b) {
    return are_like(a.step_seconds, b.step_seconds);
  });
}

/// Mean seconds of the @p num_steps steps up to the steady one, of one class.
double mean_seconds(const SimulationResult& result, std::size_t of_class, int num_steps) {
  double seconds = 0.0;
  for (int s = result.steady_step + 1 - num_steps; s <= result.steady_step; ++s) {
    seconds += result.steps[static_cast<std::size_t>(s)][of_class].step_seconds;
  }
  return seconds / num_steps;
}

/// Nobody gets ahead of the others: what lies between them would be used up one day.
bool keep_pace(const SimulationResult& result, int num_steps) {
  const double first = mean_seconds(result, 0, num_steps);
  for (std::size_t c = 1; c < result.steps.front().size(); ++c) {
    if (!are_like(mean_seconds(result, c, num_steps), first)) return false;
  }
  return true;
}

}  // namespace

int period_of(const SimulationResult& result, int num_steps) {
  const int last = result.steady_step;
  for (int period = 1; 3 * period <= last + 1; ++period) {
    const int first = last + 1 - std::max(num_steps, 2 * period);
    if (first < period) continue;
    bool repeats = true;
    for (int s = first; s <= last && repeats; ++s) repeats = is_like(result, s, s - period);
    if (repeats && keep_pace(result, period)) return period;
  }
  return 0;
}

void find_period(SimulationResult& result, int num_steps) {
  result.period_steps = period_of(result, num_steps);
  if (result.period_steps > 0 || result.steady_step == 0) return;
  --result.steady_step;
  result.period_steps = period_of(result, num_steps);
  if (result.period_steps == 0) ++result.steady_step;
}

SimulationResult simulate_steady(const Job& job, const CostModel& costs, const SimulationOptions& options) {
  const int around = steps_around(job);
  if (around == 0) return simulate(job, costs, options);
  SimulationOptions more = options;
  for (int doubling = 0;; ++doubling) {
    more.num_steps = options.num_steps + (around << doubling);
    SimulationResult result = simulate(job, costs, more);
    if (options.noise > 0.0) {
      result.period_steps = 0;
      return result;
    }
    find_period(result, options.num_steps);
    if (result.period_steps > 0 || doubling == num_doublings) return result;
  }
}

double steady_step_seconds(const SimulationResult& result) {
  const int num_steps = std::max(1, result.period_steps);
  double slowest = 0.0;
  for (std::size_t c = 0; c < result.steps.front().size(); ++c) {
    slowest = std::max(slowest, mean_seconds(result, c, num_steps));
  }
  return slowest;
}

}  // namespace strata
