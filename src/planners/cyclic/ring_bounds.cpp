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

double RingBounds::least_period(const RingCut& cut) const {
  double least = least_period_;
  double sums = 0.0;
  const int others = num_micro_batches_ - 1;
  for (std::size_t j = 0; j < cut.size() && others > 0; ++j) {
    const int end = j + 1 < cut.size() ? cut[j + 1] : stages_.num_pieces();
    const StageSeconds& stage = stages_.seconds(cut[j], end);
    sums += stage.sum;
    double of_stage = std::numeric_limits<double>::infinity();
    for (int fresh = 0; fresh <= others; ++fresh) {
      // The k-th of so many readers of a kind is no later a micro-batch than if they were the last ones.
      double longest = 0.0;
      for (const auto& [count, steps] : {std::pair{fresh, 1}, {others - fresh, 2}}) {
        for (int k = 1; k <= count; ++k) {
          longest = std::max(longest, cycle(cut[j], stage, others - 1 - (count - k), relays_ ? k : 1) / steps);
        }
      }
      of_stage = std::min(of_stage, longest);
    }
    least = std::max(least, of_stage);
  }
  return std::max(least, sums);  // which go one after the other from each rank to the next
}

bool RingBounds::may_last(int begin, int end, const std::vector<bool>& column, double limit) const {
  const StageSeconds& stage = stages_.seconds(begin, end);
  int num_readers[] = {0, 0};  // stale, fresh
  for (int i = 0; i + 1 < num_micro_batches_; ++i) {
    const bool is_fresh = column[static_cast<std::size_t>(i)];
    const int k = ++num_readers[is_fresh ? 1 : 0];
    if (cycle(begin, stage, i, relays_ ? k : 1) > (is_fresh ? limit : 2.0 * limit)) return false;
  }
  return true;
}

}  // namespace strata
