#include "planners/cyclic/exact_ring.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "base/error.hpp"

namespace strata {
namespace {

constexpr std::size_t most_graphs_kept = 20000;
constexpr int unknown_column = -1;
constexpr double rounding = 1e-11;

int size_of_set(int set) { return std::popcount(static_cast<unsigned>(set)); }

}  // namespace

ExactRing::ExactRing(const RingProblem& problem, const RingStages& stages, std::int64_t most_waits)
    : problem_(problem),
      stages_(stages),
      pieces_(problem, stages),
      num_rows_(problem.schedule.micro_batches),
      num_columns_(static_cast<std::size_t>(problem.num_stages)),
      sets_(std::size_t{1} << num_rows_),
      most_waits_(most_waits),
      allowed_(num_columns_),
      most_behind_(num_columns_ + 1, 0) {
  std::iota(sets_.begin(), sets_.end(), 0);
  std::ranges::stable_sort(sets_, std::greater(), size_of_set);
}

void ExactRing::search(Target target, const RingCut& near, const std::function<Target(const RingChoice&)>& found) {
  target_ = target;
  num_waits_before_ = num_waits_;
  near_ = near;
  found_ = &found;
  visit(CutBox::of_all(stages_.num_pieces(), problem_.num_stages), Columns(num_columns_, unknown_column));
}

bool ExactRing::is_enough(const Columns& columns) const {
  int fresh = 0;
  for (const int set : columns) {
    if (set == unknown_column) return false;
    fresh += size_of_set(set);
  }
  return fresh > target_.more_than;
}

/// @param likely a table that holds with a larger box.
void ExactRing::visit(const CutBox& box, Columns likely) {
  const BoxSeconds seconds(pieces_, box);
  for (;;) {
    if (is_exhausted()) return;
    const bool holds = (is_enough(likely) && may_hold(seconds, likely)) || find_table(seconds, likely);
    if (!holds) return;
    if (!box.is_one()) break;
    tell(box.cut(), likely);
  }
  int widest = 0;
  double most = -1.0;
  for (int j = 1; j < problem_.num_stages; ++j) {
    const auto at = static_cast<std::size_t>(j);
    if (box.first[at] == box.last[at]) continue;
    const double width = pieces_.passes(box.first[at], box.last[at]);
    if (width <= most) continue;
    most = width;
    widest = j;
  }
  const auto at = static_cast<std::size_t>(widest);
  const int middle = (box.first[at] + box.last[at] + 1) / 2;
  const std::array<CutBox, 2> halves = box.split(widest, middle);
  const bool is_behind = near_[at] >= middle;
  visit(halves[is_behind ? 1 : 0], likely);
  visit(halves[is_behind ? 0 : 1], std::move(likely));
}

void ExactRing::tell(const RingCut& cut, const Columns& columns) {
  RingChoice choice{.cut = cut, .fresh = table_of(columns)};
  Schedule schedule = problem_.schedule;
  schedule.fresh = fmt::format("{}", fmt::join(choice.fresh, " "));
  choice.period_seconds = ring_period(schedule, stages_.seconds(cut));
  for (const int set : columns) choice.num_fresh += size_of_set(set);
  STRATA_INVARIANT(choice.period_seconds <= target_.limit * (1.0 + rounding),
                   fmt::format("waits of {} s do not hold, a step takes {} s", target_.limit, choice.period_seconds));
  target_ = (*found_)(choice);
}

FreshTable ExactRing::table_of(const Columns& columns) const {
  FreshTable table = never_fresh(num_rows_, problem_.num_stages);
  for (std::size_t j = 0; j < columns.size(); ++j) {
    for (std::size_t i = 0; i < table.size(); ++i) {
      if (columns[j] != unknown_column && (columns[j] >> i & 1) != 0) table[i][j] = '1';
    }
  }
  return table;
}

bool ExactRing::may_hold(const BoxSeconds& seconds, const Columns& columns) {
  ++num_waits_;
  std::uint64_t key = 0;
  for (const int set : columns) key = key * (sets_.size() + 1) + static_cast<std::uint64_t>(set + 1);
  std::unique_ptr<RingWaits>& waits = waits_[key];
  if (!waits) {
    Schedule schedule = problem_.schedule;
    schedule.fresh = fmt::format("{}", fmt::join(table_of(columns), " "));
    std::vector<bool> known;
    for (const int set : columns) known.push_back(set != unknown_column);
    waits = std::make_unique<RingWaits>(ring_graph(schedule, problem_.num_stages, known));
  }
  return waits->may_hold(seconds, target_.limit);
}

/// With enough fresh reads. @param columns is the table where there is one.
bool ExactRing::find_table(const BoxSeconds& seconds, Columns& columns) {
  columns.assign(num_columns_, unknown_column);
  if (!may_hold(seconds, columns)) return false;
  for (std::size_t j = num_columns_; j-- > 0;) {
    allowed_[j].clear();
    for (const int set : sets_) {
      columns[j] = set;
      if (may_hold(seconds, columns)) allowed_[j].push_back(set);
    }
    columns[j] = unknown_column;
    if (allowed_[j].empty()) return false;
    most_behind_[j] = most_behind_[j + 1] + size_of_set(allowed_[j].front());
  }
  return find_from(seconds, 0, 0, columns);
}

bool ExactRing::find_from(const BoxSeconds& seconds, std::size_t stage, int fresh, Columns& columns) {
  if (stage == num_columns_) return true;
  for (const int set : allowed_[stage]) {
    const int with = fresh + size_of_set(set);
    if (with + most_behind_[stage + 1] <= target_.more_than || is_exhausted()) return false;
    columns[stage] = set;
    if ((stage == 0 || may_hold(seconds, columns)) && find_from(seconds, stage + 1, with, columns)) return true;
    columns[stage] = unknown_column;
  }
  return false;
}

}  // namespace strata
