#include "planners/cyclic/freshest_ring.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "planners/cyclic/ring_bounds.hpp"

namespace strata {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double with_error = 1.0 + FreshestRing::relative_error;
constexpr int most_rows_tried = 4;  ///< micro-batches of which all columns are tried
constexpr double most_cuts_listed = 400000;
constexpr int most_periods = 20000;       ///< in an exhaustive search; about a second
constexpr int most_periods_in_turn = 64;  ///< of stages that get one more fresh reader each

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
    const bool lists_cuts = num_rows_ <= most_rows_tried && num_cuts() <= most_cuts_listed;
    if (least_ > found.period_bound_seconds * with_error && lists_cuts) {
      found.period_bound_seconds = least_of_all_cuts();
    }
    found.fresh_bound = best_cut(limit()).num_fresh;
    if (most_within(limit()) < found.fresh_bound && lists_cuts) found.fresh_bound = most_of_all_cuts(found.fresh_bound);
    found.least_period_seconds = least_;
    found.num_periods = num_periods_;
    std::ranges::stable_sort(choices_, {}, [&](const RingChoice& c) {
      const bool is_slow = c.period_seconds > limit();
      return std::tuple(is_slow, is_slow ? 0 : -c.num_fresh, c.period_seconds);
    });
    found.best = choices_.front();
    if (choices_.size() > 1) found.runner_up = choices_[1];
    return found;
  }

 private:
  double limit() const { return problem_.within * least_ * with_error; }
  int end_of(const RingCut& cut, int stage) const {
    return stage + 1 < num_columns_ ? cut[at(stage + 1)] : stages_.num_pieces();
  }

  // ---- periods ------------------------------------------------------------------------------------------------------

  double period(const std::vector<StageSeconds>& seconds, const FreshTable& table,
                const std::vector<bool>& known = {}) {
    ++num_periods_;
    Schedule schedule = problem_.schedule;
    schedule.fresh.clear();
    for (const std::string& row : table) schedule.fresh += (schedule.fresh.empty() ? "" : " ") + row;
    return ring_period(schedule, seconds, known);
  }

  double consider(const RingCut& cut, const FreshTable& table) {
    const auto same =
        std::ranges::find_if(choices_, [&](const RingChoice& c) { return c.cut == cut && c.fresh == table; });
    if (same != choices_.end()) return same->period_seconds;
    return keep(cut, table, period(stages_.seconds(cut), table));
  }
  double keep(const RingCut& cut, const FreshTable& table, double seconds) {
    choices_.push_back({cut, table, seconds, num_fresh(table)});
    least_ = std::min(least_, seconds);
    return seconds;
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
    const int until = num_periods_ + most_periods_in_turn;
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

  // ---- all cuts -----------------------------------------------------------------------------------------------------

  double num_cuts() const {
    double count = 1.0;
    for (int k = 1; k < num_columns_; ++k) count = count * (stages_.num_pieces() - k) / k;
    return count;
  }
  std::vector<RingCut> all_cuts() const {
    std::vector<RingCut> cuts;
    RingCut cut(at(num_columns_));
    for (int j = 0; j < num_columns_; ++j) cut[at(j)] = j;
    const int n = stages_.num_pieces();
    for (;;) {
      cuts.push_back(cut);
      int j = num_columns_ - 1;
      while (j > 0 && cut[at(j)] == n - num_columns_ + j) --j;
      if (j <= 0) return cuts;
      for (int begin = cut[at(j)] + 1; j < num_columns_; ++j, ++begin) cut[at(j)] = begin;
    }
  }

  /// @return a bound of the least period, which is the least period where the search has come to its end.
  double least_of_all_cuts() {
    std::vector<std::pair<double, RingCut>> cuts;
    for (RingCut& cut : all_cuts()) {
      const double bound = bounds_.least_period(cut);
      cuts.emplace_back(bound, std::move(cut));
    }
    std::ranges::sort(cuts);
    for (const auto& [bound, cut] : cuts) {
      if (bound * with_error >= least_) return least_;
      if (is_exhausted()) return bound;
      TablesOfCut tables(*this, cut);
      while (tables.find(least_ / with_error, -1)) continue;
      if (is_exhausted()) return bound;
    }
    return least_;
  }

  /// @return a bound of the most fresh reads within the limit, which is their number where the search has come to its
  /// end.
  int most_of_all_cuts(int most_by_closed_form) {
    const double most_seconds = limit();
    int most = most_within(most_seconds);
    std::vector<std::pair<int, RingCut>> cuts;
    for (RingCut& cut : all_cuts()) {
      int bound = 0;
      for (int j = 0; j < num_columns_; ++j) bound += bounds_.most_fresh(cut[at(j)], end_of(cut, j), most_seconds);
      if (bound > most && bounds_.least_period(cut) <= most_seconds) cuts.emplace_back(-bound, std::move(cut));
    }
    std::ranges::sort(cuts);
    int exhausted_at = most_by_closed_form;
    for (const auto& [negative_bound, cut] : cuts) {
      if (-negative_bound <= most) return most;
      exhausted_at = -negative_bound;
      if (is_exhausted()) return exhausted_at;
      TablesOfCut tables(*this, cut);
      while (tables.find(most_seconds, most)) most = most_within(most_seconds);
      if (is_exhausted()) return exhausted_at;
    }
    return most;
  }

  bool is_exhausted() const { return num_periods_ >= most_periods; }

  /// Every table of one cut, column by column.
  class TablesOfCut {
   public:
    TablesOfCut(RingSearch& search, const RingCut& cut)
        : search_(search), cut_(cut), seconds_(search.stages_.seconds(cut)), known_(cut.size(), false) {
      table_ = never_fresh(search.num_rows_, search.num_columns_);
    }

    /// One of @p limit seconds at most with more fresh reads than @p fresh is among the choices now.
    bool find(double limit, int fresh) {
      limit_ = limit;
      known_.assign(cut_.size(), false);
      if (search_.period(seconds_, table_, known_) > limit) return false;
      more_than_ = fresh;
      columns_.clear();
      most_behind_.assign(cut_.size() + 1, 0);
      for (int j = 0; j < search_.num_columns_; ++j) columns_.push_back(columns_of(j));
      for (std::size_t j = cut_.size(); j-- > 0;) {
        if (columns_[j].empty()) return false;
        most_behind_[j] = most_behind_[j + 1] + std::ranges::count(columns_[j].front(), true);
      }
      return from_column(0, 0);
    }

   private:
    using Column = std::vector<bool>;

    /// What the closed form allows, the freshest first.
    std::vector<Column> columns_of(int j) const {
      std::vector<Column> all;
      for (int bits = 0; bits < 1 << search_.num_rows_; ++bits) {
        Column column;
        for (int i = 0; i < search_.num_rows_; ++i) column.push_back((bits >> i & 1) != 0);
        if (search_.bounds_.may_last(cut_[at(j)], search_.end_of(cut_, j), column, limit_)) all.push_back(column);
      }
      std::ranges::stable_sort(all, std::greater(), [](const Column& c) { return std::ranges::count(c, true); });
      return all;
    }

    bool from_column(int j, std::int64_t fresh) {
      for (const Column& column : columns_[at(j)]) {
        const std::int64_t with = fresh + std::ranges::count(column, true);
        if (with + most_behind_[at(j + 1)] <= more_than_ || search_.is_exhausted()) return false;
        for (int i = 0; i < search_.num_rows_; ++i) table_[at(i)][at(j)] = column[at(i)] ? '1' : '0';
        known_[at(j)] = true;
        const double seconds = search_.period(seconds_, table_, known_);
        if (seconds <= limit_) {
          const bool is_last = j + 1 == search_.num_columns_;
          if (is_last) search_.keep(cut_, table_, seconds);
          if (is_last || from_column(j + 1, with)) return true;
        }
        known_[at(j)] = false;
      }
      return false;
    }

    RingSearch& search_;
    const RingCut& cut_;
    std::vector<StageSeconds> seconds_;
    FreshTable table_;
    std::vector<bool> known_;
    std::vector<std::vector<Column>> columns_;
    std::vector<std::int64_t> most_behind_;  ///< by column: fresh reads of all columns from it on, at most
    double limit_ = 0.0;
    std::int64_t more_than_ = 0;
  };

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
