#include "planners/cyclic/ring_bounds.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

namespace strata {

RingBounds::RingBounds(const RingProblem& problem, const RingStages& stages)
    : stages_(stages),
      num_micro_batches_(problem.schedule.micro_batches),
      adds_inside_(problem.schedule.sum == "inside"),
      relays_(problem.schedule.spread == "relay") {
  const StageSeconds& all = stages.from(0);
  const bool adds = !adds_inside_ && num_micro_batches_ > 1;
  least_period_ = all.forward + all.backward + all.update + (adds ? all.addition : 0.0);
}

double RingBounds::cycle(int begin, const StageSeconds& stage, int i, int messages) const {
  const StageSeconds& behind = stages_.from(begin);
  const double passes = behind.forward + behind.backward + (adds_inside_ || i == 0 ? 0.0 : behind.addition);
  const double a_sum = stage.sum + (adds_inside_ ? stage.backward : stage.addition);
  return stage.update + messages * stage.parameters + passes + (num_micro_batches_ - 1 - i) * a_sum;
}

int RingBounds::most_fresh(int begin, int end, double limit) const {
  const StageSeconds& stage = stages_.seconds(begin, end);
  const int others = num_micro_batches_ - 1;
  for (int fresh = others; fresh > 0; --fresh) {
    bool may = true;
    for (int k = 1; k <= fresh && may; ++k)
      may = cycle(begin, stage, others - 1 - (fresh - k), relays_ ? k : 1) <= limit;
    if (may) return fresh + 1;
  }
  return 1;  // the last rank updates what it reads
}

double RingBounds::least_of_stage(int begin, int end) const {
  const int others = num_micro_batches_ - 1;
  if (others == 0) return 0.0;
  const StageSeconds& stage = stages_.seconds(begin, end);
  double least = std::numeric_limits<double>::infinity();
  for (int fresh = 0; fresh <= others; ++fresh) {
    // The k-th of so many readers of a kind is no later a micro-batch than if they were the last ones.
    double longest = 0.0;
    for (const auto& [count, steps] : {std::pair{fresh, 1}, {others - fresh, 2}}) {
      for (int k = 1; k <= count; ++k) {
        longest = std::max(longest, cycle(begin, stage, others - 1 - (count - k), relays_ ? k : 1) / steps);
      }
    }
    least = std::min(least, longest);
  }
  return least;
}

double RingBounds::least_period_of_cuts(int num_stages) const {
  const int n = stages_.num_pieces();
  const auto at = [](int i) { return static_cast<std::size_t>(i); };
  // By the piece that they begin with: what the last so many stages take at least.
  std::vector<double> least(at(n + 1), std::numeric_limits<double>::infinity());
  least.back() = least_period_;
  std::vector<double> of_stage(at(n + 1) * at(n + 1), 0.0);
  for (int begin = 0; begin < n; ++begin) {
    for (int end = begin + 1; end <= n; ++end) of_stage[at(begin) * at(n + 1) + at(end)] = least_of_stage(begin, end);
  }
  for (int j = 0; j < num_stages; ++j) {
    std::vector<double> with_one_more(at(n + 1), std::numeric_limits<double>::infinity());
    for (int begin = 0; begin < n; ++begin) {
      for (int end = begin + 1; end <= n; ++end) {
        const double longest = std::max(least[at(end)], of_stage[at(begin) * at(n + 1) + at(end)]);
        with_one_more[at(begin)] = std::min(with_one_more[at(begin)], longest);
      }
    }
    least = std::move(with_one_more);
  }
  return least.front();
}

}  // namespace strata
