#pragma once

/// @file
/// A model of which few blocks stand for all: what their instructions take by Evaluate::price(), those of their like
/// take too.

#include <algorithm>
#include <vector>

#include "ir/model/model_graph.hpp"
#include "partition/repeated_blocks.hpp"

namespace strata {

/// The first blocks of each run of equal ones.
class FewBlocks {
 public:
  /// @param enough of a run: two, or three where the last one, behind which something else stands, is to be told from
  /// those between.
  explicit FewBlocks(const ModelGraph& graph, int enough = 2)
      : graph_(graph), enough_(enough), runs_(runs_of_equal_blocks(graph, [](int, int) { return true; })) {}
  const std::vector<BlockRun>& runs() const { return runs_; }
  /// Enough of each run, of run @p larger one more; -1: of none.
  ModelGraph part(int larger) const {
    std::vector<int> kept;
    for (std::size_t r = 0; r < runs_.size(); ++r) {
      kept.push_back(std::min(runs_[r].count, static_cast<int>(r) == larger ? enough_ + 1 : enough_));
    }
    return with_fewer_blocks(graph_, runs_, kept);
  }
  /// The operator of the part that stands for @p op: that of the same place in the second block of its run, or, of the
  /// run's last block, in the last that stays.
  const Operator& stands_for(int op) const { return graph_.operators[at(id_of_stand_in(op))]; }
  /// Its id in the whole graph.
  int id_of_stand_in(int op) const {
    const Operator& own = graph_.operators[at(op)];
    if (own.block < 0) return op;
    const auto run = std::ranges::find_if(
        runs_, [&](const BlockRun& r) { return own.block >= r.first && own.block < r.first + r.count; });
    const int number = own.block - run->first, last_kept = std::min(run->count, enough_) - 1;
    const int instead = run->first + (number == run->count - 1 ? last_kept : std::min(number, 1));
    const int place = op - graph_.blocks[at(own.block)].first_operator;
    return graph_.blocks[at(instead)].first_operator + place;
  }
  int run_of_block(int block) const {
    for (std::size_t r = 0; r < runs_.size(); ++r) {
      if (block < runs_[r].first + runs_[r].count) return static_cast<int>(r);
    }
    return -1;
  }
  bool is_in_part(int block) const { return block < runs_[at(run_of_block(block))].first + enough_; }
  /// A third block adds what each further one does.
  bool has_third(int run) const { return runs_[at(run)].count > enough_; }

 private:
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }
  const ModelGraph& graph_;
  int enough_;
  std::vector<BlockRun> runs_;
};

}  // namespace strata
