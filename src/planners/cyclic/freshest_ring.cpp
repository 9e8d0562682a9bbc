#include "planners/cyclic/freshest_ring.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "base/infinity.hpp"
#include "planners/cyclic/exact_ring.hpp"
#include "planners/cyclic/ring_bounds.hpp"

namespace strata {
namespace {

constexpr double with_error = 1.0 + FreshestRing::relative_error;
constexpr int most_rows_tried = 4;           ///< micro-batches of which all columns are tried
constexpr std::int64_t most_waits = 100000;  ///< looked at, with more stages than that
constexpr int most_periods_in_turn = 64;     ///< of stages that get one more fresh reader each
constexpr int most_cells_in_turn = 16384;    ///< of the tables of these

std::size_t at(int i) { return static_cast<std::size_t>(i); }

int num_fresh(const FreshTable& table) {
  int count = 0;
  for (const std::string& row : table) count += static_cast<int>(std::ranges::count(row, '1'));
  return count;
}

/// All that were looked at, each once.
class RingSearch {
 public:
  explicit RingSearch(const RingProblem& problem)
      : problem_(problem),
        stages_(problem),
        bounds_(problem, stages_),
        num_rows_(problem.schedule.micro_batches),
        num_columns_(problem.num_stages) {
    STRATA_INVARIANT(num_columns_ >= 1 && num_columns_ <= stages_.num_pieces(), "a stage has one piece or more");
  }

  FreshestRing run() {
    FreshestRing found;
    from_bounds();
    found.period_bound_seconds = bounds_.least_period();
    const bool searches = num_rows_ <= most_rows_tried;
    std::optional<ExactRing> exact;
    if (searches) exact.emplace(problem_, stages_, num_columns_ <= most_rows_tried ? 0 : most_waits);
    const auto find = [&](double seconds, int fresh, const auto& next) {
      exact->search({seconds, fresh}, best().cut, [&](const RingChoice& better) {
        keep(better);
        return next();
      });
      return !exact->is_exhausted();
    };
    if (least_ > found.period_bound_seconds * with_error) {
      found.period_bound_seconds = bounds_.least_period_of_cuts(num_columns_);
    }
    if (searches && least_ > found.period_bound_seconds * with_error) {
      const auto shorter = [&] { return ExactRing::Target{least_ / with_error, -1}; };
      if (find(least_ / with_error, -1, shorter)) found.period_bound_seconds = least_;
    }
    found.fresh_bound = best_cut(limit()).num_fresh;
    if (searches && most_within(limit()) < found.fresh_bound) {
      const double seconds = problem_.within * least_ * (1.0 + FreshestRing::relative_error / 2);
      const auto fresher = [&] { return ExactRing::Target{seconds, most_within(limit())}; };
      if (find(seconds, most_within(limit()), fresher)) found.fresh_bound = most_within(limit());
    }
    found.least_period_seconds = least_;
    found.num_periods = num_periods_;
    if (exact) found.num_waits = exact->num_waits();
    sort();
    found.best = choices_.front();
    if (choices_.size() > 1) found.runner_up = choices_[1];
    return found;
  }

 private:
  void sort() {
    std::ranges::stable_sort(choices_, {}, [&](const RingChoice& c) {
      const bool is_slow = c.period_seconds > limit();
      return std::tuple(is_slow, is_slow ? 0 : -c.num_fresh, c.period_seconds);
    });
  }
  const RingChoice& best() {
    sort();
    return choices_.front();
  }
  double limit() const { return problem_.within * least_ * with_error; }
  int end_of(const RingCut& cut, int stage) const {
    return stage + 1 < num_columns_ ? cut[at(stage + 1)] : stages_.num_pieces();
  }

  // ---- periods ------------------------------------------------------------------------------------------------------

  double consider(const RingCut& cut, const FreshTable& table) {
    const auto same =
        std::ranges::find_if(choices_, [&](const RingChoice& c) { return c.cut == cut && c.fresh == table; });
    if (same != choices_.end()) return same->period_seconds;
    ++num_periods_;
    Schedule schedule = problem_.schedule;
    schedule.fresh = fmt::format("{}", fmt::join(table, " "));
    keep({cut, table, ring_period(schedule, stages_.seconds(cut)), num_fresh(table)});
    return choices_.back().period_seconds;
  }
  void keep(const RingChoice& choice) {
    choices_.push_back(choice);
    least_ = std::min(least_, choice.period_seconds);
  }
  int most_within(double limit) const {
    int most = -1;
    for (const RingChoice& c : choices_) most = c.period_seconds <= limit ? std::max(most, c.num_fresh) : most;
    return most;
  }

  // ---- by closed forms ----------------------------------------------------------------------------------------------

  struct BoundedCut {
    RingCut cut{};
    int num_fresh = 0;
  };

  /// The cut whose stages have the most fresh readers by the closed form in a step of @p limit; of these the most even
  /// one (least sum of squares).
  BoundedCut best_cut(double limit) const {
    struct Best {
      int fresh = -1;
      double squares = infinity;
      int end = -1;  ///< of the stage
      bool is_behind(const Best& other) const {
        return std::pair(-fresh, squares) > std::pair(-other.fresh, other.squares);
      }
    };
    const int n = stages_.num_pieces();
    std::vector<std::vector<Best>> table(at(num_columns_ + 1), std::vector<Best>(at(n + 1)));
    table[at(num_columns_)][at(n)] = {0, 0.0, -1};
    for (int begin = n; begin-- > 0;) {
      for (int end = begin + 1; end <= n; ++end) {
        const StageSeconds& all = stages_.seconds(begin, end);
        const double cost = all.forward + all.backward;
        int here = -1;
        for (int stage = std::max(0, num_columns_ - (n - begin)); stage < num_columns_ && stage <= begin; ++stage) {
          const Best& behind = table[at(stage + 1)][at(end)];
          if (behind.fresh < 0) continue;
          if (here < 0) here = bounds_.most_fresh(begin, end, limit);
          const Best with{behind.fresh + here, behind.squares + cost * cost, end};
          Best& best = table[at(stage)][at(begin)];
          if (best.is_behind(with)) best = with;
        }
      }
    }
    BoundedCut found{.num_fresh = table[0][0].fresh};
    for (int stage = 0, begin = 0; stage < num_columns_; begin = table[at(stage++)][at(begin)].end) {
      found.cut.push_back(begin);
    }
    return found;
  }

  /// Of each stage the last micro-batches are fresh, as many as the closed form allows in a step of @p limit.
  FreshTable by_bounds(const RingCut& cut, double limit) const {
    FreshTable table = never_fresh(num_rows_, num_columns_);
    for (int j = 0; j < num_columns_; ++j) {
      const int fresh = bounds_.most_fresh(cut[at(j)], end_of(cut, j), limit);
      for (int i = num_rows_ - fresh; i < num_rows_; ++i) table[at(i)][at(j)] = '1';
    }
    return table;
  }

  /// Something good, and where the bounds are met the best.
  void from_bounds() {
    for (const double seconds : {infinity, bounds_.least_period()}) {  // the most even cut, and the freshest
      const RingCut cut = best_cut(seconds).cut;
      consider(cut, freshest(num_rows_, num_columns_));
      consider(cut, never_fresh(num_rows_, num_columns_));
      consider(cut, by_bounds(cut, bounds_.least_period()));
    }
    // The less the closed form may take, the more room is left for what it does not see.
    double holds = 0.0, breaks = 1.0;
    const auto may_take = [&](double part) {
      const RingCut cut = best_cut(part * limit()).cut;
      return consider(cut, by_bounds(cut, part * limit())) <= limit();
    };
    if (may_take(breaks)) return;
    for (int halving = 0; halving < 7; ++halving) {
      const double middle = (holds + breaks) / 2;
      (may_take(middle) ? holds : breaks) = middle;
    }
    one_by_one();
  }

  /// One more fresh reader a stage, as long as the step lasts no longer.
  void one_by_one() {
    const double most = limit();
    const auto start = std::ranges::max_element(choices_, {}, [&](const RingChoice& c) {
      return std::pair(c.period_seconds <= most ? c.num_fresh : -1, -c.period_seconds);
    });
    const RingCut cut = start->cut;
    FreshTable table = start->fresh;
    const int until = num_periods_ + std::min(most_periods_in_turn, most_cells_in_turn / (num_rows_ * num_columns_));
    for (bool is_better = true; is_better;) {
      is_better = false;
      for (int j = 0; j < num_columns_ && num_periods_ < until; ++j) {
        FreshTable more = table;
        const auto last_stale =
            std::ranges::find_if(more.rbegin(), more.rend(), [&](const std::string& row) { return row[at(j)] == '0'; });
        if (last_stale == more.rend()) continue;
        (*last_stale)[at(j)] = '1';
        if (num_fresh_of(more, j) > bounds_.most_fresh(cut[at(j)], end_of(cut, j), most)) continue;
        if (consider(cut, more) > most) continue;
        table = std::move(more);
        is_better = true;
      }
    }
  }
  static int num_fresh_of(const FreshTable& table, int column) {
    return static_cast<int>(
        std::ranges::count_if(table, [&](const std::string& row) { return row[at(column)] == '1'; }));
  }

  const RingProblem& problem_;
  RingStages stages_;
  RingBounds bounds_;
  int num_rows_, num_columns_;
  std::vector<RingChoice> choices_;
  double least_ = infinity;
  int num_periods_ = 0;
};

}  // namespace

FreshestRing freshest_ring(const RingProblem& problem) { return RingSearch(problem).run(); }

}  // namespace strata
