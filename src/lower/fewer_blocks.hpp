#pragma once

/// @file
/// What all blocks of a model need or take, told from few of them: of neighbouring blocks that are alike, with the same
/// decisions, each further one adds what one more of few adds.

#include <algorithm>
#include <functional>
#include <vector>

#include "ir/model/model_graph.hpp"
#include "ir/plan/plan.hpp"
#include "partition/repeated_blocks.hpp"

namespace strata {

/// A plan of one stage, for parts of its model.
class FewBlocks {
 public:
  /// @param kept blocks that stay of each run of equal ones, where it has as many.
  /// @param added blocks that are added to a run to see what they add.
  /// @param graph outlives this.
  FewBlocks(const Plan& plan, const ModelGraph& graph, int kept, int added);

  /// Blocks that told() asks about in all, those of different parts added up.
  int num_blocks_asked() const;

  /// @param value_of (plan, part of the graph): a number of a part by itself. Asked once more for each run of which
  /// blocks are left out.
  template <typename Value>
  Value told(const std::function<Value(const Plan&, const ModelGraph&)>& value_of) const {
    const Value few = of_part(value_of, kept_);
    Value all = few;
    for (std::size_t r = 0; r < runs_.size(); ++r) {
      const int added = num_added(r);
      if (added == 0) continue;
      std::vector<int> more = kept_;
      more[r] += added;
      all += static_cast<Value>(num_left_out(r)) * (of_part(value_of, more) - few) / static_cast<Value>(added);
    }
    return all;
  }

 private:
  int num_left_out(std::size_t run) const { return runs_[run].count - kept_[run]; }
  int num_added(std::size_t run) const { return std::min(added_, num_left_out(run)); }

  template <typename Value>
  Value of_part(const std::function<Value(const Plan&, const ModelGraph&)>& value_of,
                const std::vector<int>& kept) const {
    const ModelGraph part = with_fewer_blocks(graph_, runs_, kept);
    return value_of(with_rules_of(plan_, part), part);
  }

  Plan plan_;
  const ModelGraph& graph_;
  int added_;
  std::vector<BlockRun> runs_;
  std::vector<int> kept_;  ///< by run
};

}  // namespace strata
