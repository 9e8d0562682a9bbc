#pragma once

/// @file
/// All cuts and tables of a ring, but for those that a bound leaves out: is there one that takes no longer than a limit
/// and has more fresh reads than a number?
///
/// Cuts are looked at by the box (cut_box.hpp), tables stage by stage. A box is left out where no table holds with the
/// waits of its cuts; where one does, the box is halved, down to single cuts, of which a table that holds is an answer.
/// With parameters of some stages known and others not, waits are fewer: a table is given up where those so far do not
/// hold.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "planners/cyclic/cut_box.hpp"
#include "planners/cyclic/ring_problem.hpp"
#include "planners/cyclic/ring_waits.hpp"

namespace strata {

class ExactRing {
 public:
  /// @param most_waits as many times are waits looked at in a search; 0: as often as it takes.
  ExactRing(const RingProblem& problem, const RingStages& stages, std::int64_t most_waits);

  struct Target {
    double limit = 0.0;  ///< seconds
    int more_than = -1;  ///< fresh reads
  };
  /// Finds until there are no more. @param found is told, and says what to find from there on.
  void search(Target target, const RingCut& near, const std::function<Target(const RingChoice&)>& found);

  std::int64_t num_waits() const { return num_waits_; }
  /// The last search ended before it was through.
  bool is_exhausted() const { return most_waits_ > 0 && num_waits_ - num_waits_before_ >= most_waits_; }

 private:
  /// By stage a set of micro-batches, the fresh ones, as bits; -1: not known.
  using Columns = std::vector<int>;

  void visit(const CutBox& box, Columns likely);
  bool may_hold(const BoxSeconds& seconds, const Columns& columns);
  bool find_table(const BoxSeconds& seconds, Columns& columns);
  bool find_from(const BoxSeconds& seconds, std::size_t stage, int fresh, Columns& columns);
  bool is_enough(const Columns& columns) const;
  void tell(const RingCut& cut, const Columns& columns);
  FreshTable table_of(const Columns& columns) const;

  const RingProblem& problem_;
  const RingStages& stages_;
  PieceSeconds pieces_;
  int num_rows_;
  std::size_t num_columns_;
  std::vector<int> sets_;  ///< of micro-batches, the largest first
  std::int64_t most_waits_;
  std::int64_t num_waits_ = 0, num_waits_before_ = 0;
  std::unordered_map<std::uint64_t, std::unique_ptr<RingWaits>> waits_;  ///< by columns
  Target target_{};
  RingCut near_;
  const std::function<Target(const RingChoice&)>* found_ = nullptr;
  std::vector<std::vector<int>>
      allowed_;  ///< by stage, in the box that is looked at: sets that hold where no other stage is known
  std::vector<int> most_behind_;  ///< by stage: fresh reads of those from it on, at most
};

}  // namespace strata
